"""Events and commands over SSE and WebSocket, through clients that others wrote: `websockets`,
`wsproto` on a plain socket, `httpx` with `httpx-sse`.

Usage: streams.py <http port> <token>
"""

import json
import os
import socket
import ssl
import sys
import threading

import httpx
import websockets.exceptions
from httpx_sse import connect_sse
from websockets.sync.client import connect
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)

port, token = int(sys.argv[1]), sys.argv[2]
base = f"127.0.0.1:{port}"
# The file of an authority, where all of it goes over TLS.
ca = os.environ.get("CORQ_TEST_CA")
context = ssl.create_default_context(cafile=ca) if ca else None
http, ws = ("https", "wss") if ca else ("http", "ws")
verify = context or True
bearer = {"Authorization": f"Bearer {token}"}


class Commands:
    """Commands over one connection of `websockets`, events set aside."""

    def __init__(self, path, **options):
        options.setdefault("additional_headers", bearer)
        # A machine may be slow; the bound of its own is 10 s.
        options.setdefault("open_timeout", 300)
        options.setdefault("ping_timeout", 300)
        self.socket = connect(f"{ws}://{base}{path}", ssl=context, **options)
        self.events = []
        self.count = 0

    def __call__(self, cmd, **fields):
        self.count += 1
        self.socket.send(json.dumps({"cmd": cmd, "reqId": self.count, **fields}))
        while True:
            message = json.loads(self.socket.recv(timeout=300))
            if message.get("reqId") == self.count:
                return message
            self.events.append(message)

    def event(self):
        if self.events:
            return self.events.pop(0)
        return json.loads(self.socket.recv(timeout=300))


def life_of_a_job_over_websockets():
    do = Commands("/ws/queues/py-life")
    assert not do.socket.protocol.extensions, "compression is not offered"
    data = {"big": 2**63, "text": "ä\n😀", "float": 1.0, "list": [None, True]}
    pushed = do("PUSH", queue="py-life", data=data, priority=3)
    assert pushed["ok"], pushed
    job = do("PULL", queue="py-life", owner="python", timeout=60_000)
    assert job["job"]["data"] == data and job["job"]["id"] == pushed["id"], job
    refused = do("ACK", id=pushed["id"])
    assert not refused["ok"] and "token" in refused["error"], refused
    assert do("ACK", id=pushed["id"], token=job["token"], result=[2**64 - 1])["ok"]
    assert do("GetResult", id=pushed["id"])["result"] == [2**64 - 1]
    kinds = [do.event()["eventType"] for _ in range(3)]
    assert kinds == ["pushed", "pulled", "completed"], kinds
    pong = do.socket.ping(b"hello")
    assert pong.wait(300), "a ping is answered"
    do.socket.close(1000, "done")
    assert do.socket.protocol.close_rcvd.code == 1000


def large_and_fragmented_messages_over_websockets():
    do = Commands("/ws/queues/py-large", max_size=None)
    text = "ä" * 4_000_000
    do.socket.send(iter(['{"cmd":"PUSH","queue":"py-large","reqId":0,"data":"', text, '"}']))
    reply = json.loads(do.socket.recv(timeout=300))
    while reply.get("reqId") != 0:
        reply = json.loads(do.socket.recv(timeout=300))
    assert reply["ok"], reply
    assert do("PULL", queue="py-large")["job"]["data"] == text
    do.socket.close()


def close_codes_as_websockets_sees_them():
    do = Commands("/ws")
    do.socket.send(b"binary")
    code = closed(do.socket)
    assert code == 1003, code


def closed(connection):
    try:
        while True:
            connection.recv(timeout=300)
    except websockets.exceptions.ConnectionClosed as end:
        return end.rcvd.code


def strangers_are_kept_out():
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        try:
            Commands("/ws", additional_headers=headers)
        except websockets.exceptions.InvalidStatus as refusal:
            assert refusal.response.status_code == 401
            assert json.loads(refusal.response.body) == {"ok": False, "error": "Unauthorized", "code": "unauthorized"}
        else:
            raise AssertionError("a stranger came in")
        answer = httpx.get(f"{http}://{base}/events", headers=headers, verify=verify)
        assert answer.status_code == 401, answer
        assert answer.json() == {"ok": False, "error": "Unauthorized", "code": "unauthorized"}


def wsproto_on_a_plain_socket():
    plain = socket.create_connection(("127.0.0.1", port), timeout=300)
    if context:
        plain = context.wrap_socket(plain, server_hostname="127.0.0.1")
    peer = WSConnection(ConnectionType.CLIENT)
    headers = [(b"Authorization", f"Bearer {token}".encode())]
    plain.sendall(peer.send(Request(host=base, target="/ws/queues/wsproto", extra_headers=headers)))
    seen = []

    def until(kind):
        while True:
            for event in seen:
                if isinstance(event, kind):
                    seen.remove(event)
                    return event
            received = plain.recv(65536)
            peer.receive_data(received or None)
            for event in peer.events():
                assert not isinstance(event, RejectConnection), event
                seen.append(event)

    assert until(AcceptConnection).extensions == []
    plain.sendall(peer.send(TextMessage('{"cmd":"Pi', message_finished=False)))
    plain.sendall(peer.send(Ping(b"between")))
    plain.sendall(peer.send(TextMessage('ng","reqId":"w"}')))
    assert until(Pong).payload == b"between"
    reply = json.loads(until(TextMessage).data)
    assert reply["ok"] and reply["reqId"] == "w" and reply["data"]["pong"], reply
    plain.sendall(peer.send(CloseConnection(code=4000, reason="enough")))
    assert until(CloseConnection).code == 4000
    plain.close()


def events_over_httpx():
    do = Commands("/ws/queues/nothing")
    with httpx.Client(base_url=f"{http}://{base}", headers=bearer, timeout=300, verify=verify) as client:
        with connect_sse(client, "GET", "/events/queues/py-sse") as source:
            events = source.iter_sse()
            first = next(events)
            assert first.event == "message" and not first.id, first
            assert first.json()["connected"] is True and len(first.json()["clientId"]) == 36

            def work():
                job = do("PUSH", queue="py-sse", data={"text": "a\n\nb"}, maxAttempts=1)["id"]
                do("PULL", queue="py-sse")
                do("Progress", id=job, progress=50)
                do("FAIL", id=job, error="broken\nin two lines")

            worker = threading.Thread(target=work)
            worker.start()
            heard = [next(events).json() for _ in range(4)]
            worker.join()
    kinds = [event["eventType"] for event in heard]
    assert kinds == ["pushed", "pulled", "progress", "failed"], kinds
    assert heard[0]["data"] == {"text": "a\n\nb"}
    assert heard[2]["progress"] == 50
    assert heard[3]["error"] == "broken\nin two lines"
    assert all(event["queue"] == "py-sse" and event["timestamp"] > 1.6e12 for event in heard)
    do.socket.close()


for judge in (
    life_of_a_job_over_websockets,
    large_and_fragmented_messages_over_websockets,
    close_codes_as_websockets_sees_them,
    strangers_are_kept_out,
    wsproto_on_a_plain_socket,
    events_over_httpx,
):
    judge()
    print(judge.__name__, "ok")
