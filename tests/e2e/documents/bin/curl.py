#!/usr/bin/env python3
"""As much of curl as the pages use: -X, -d, -N, --unix-socket and a URL. An error status is a failure, and a stream ends
with its first event but the one that says that it stands."""
import http.client
import socket
import sys
import urllib.parse

method, body, path, stream, url = None, None, None, False, None
words = iter(sys.argv[1:])
for word in words:
    if word == "-X":
        method = next(words)
    elif word == "-d":
        body = next(words)
    elif word == "--unix-socket":
        path = next(words)
    elif word == "-N":
        stream = True
    elif word.startswith("-"):
        sys.exit(f"curl: {word} is not known here")
    else:
        url = word if "://" in word else f"http://{word}"
parts = urllib.parse.urlsplit(url)
connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=30)
if path is not None:
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
target = parts.path + (f"?{parts.query}" if parts.query else "")
connection.request(method or ("POST" if body else "GET"), target, body)
answer = connection.getresponse()
if stream and answer.status == 200:
    print(answer.readline().decode())
else:
    print(answer.read().decode())
if answer.status >= 400:
    sys.exit(f"curl: {answer.status}")
