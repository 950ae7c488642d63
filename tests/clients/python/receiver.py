"""A receiver of webhooks as a user would write it in Python: the standard library and nothing else.

usage: receiver.py SECRET [CERTIFICATE KEY]

Says `port N`, then a line for each post: `ok EVENT JOBID`, or `bad` and what is wrong with it.
"""

import hashlib
import hmac
import http.server
import json
import ssl
import sys
import time

SECRET = sys.argv[1].encode()
EXTRAS = {"job.failed": {"error"}, "job.progress": {"progress"}}


def faults(headers, raw):
    """All that is wrong with a post."""
    expected = hmac.new(SECRET, raw, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, headers.get("X-Webhook-Signature", "")):
        yield "the signature does not fit"
    if headers.get("Content-Type") != "application/json":
        yield "it is not said to be JSON"
    body = json.loads(raw)
    wanted = {"event", "timestamp", "jobId", "queue", "data"} | EXTRAS.get(body["event"], set())
    if set(body) != wanted:
        yield f"its fields are {sorted(body)}"
    if headers.get("X-Webhook-Event") != body["event"]:
        yield "head and body name different events"
    if headers.get("X-Webhook-Timestamp") != str(body["timestamp"]):
        yield "head and body name different times"
    if not isinstance(body["timestamp"], int) or abs(body["timestamp"] / 1000 - time.time()) > 60:
        yield "its time is not now"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        found = list(faults(self.headers, raw))
        body = json.loads(raw)
        said = "; ".join(found)
        line = f"bad {said}" if found else f"ok {body['event']} {body['jobId']}"
        # One write: several deliveries come at once, each to a thread of its own.
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        self.send_response(400 if found else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    # A handshake that fails must not end the receiver: it is made when the connection is first read.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    server.handle_error = lambda *_: None
print(f"port {server.server_address[1]}", flush=True)
server.serve_forever()
