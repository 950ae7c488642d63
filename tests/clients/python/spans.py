"""Judges the server's spans with the official OpenTelemetry packages of Python: a producer and a consumer by the SDK, and a
collector that reads what is posted with opentelemetry-proto.

Prints the port of the collector, reads the port of the server's HTTP from its input, and ends with status 0 if all fits.
"""

import json
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry import propagate, trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE

DEADLINE_S = 300
received = []
lock = threading.Lock()


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = trace_service_pb2.ExportTraceServiceRequest()
        request.ParseFromString(body)
        # What is not known to the library would be kept aside: there must be nothing of it.
        again = trace_service_pb2.ExportTraceServiceRequest()
        again.ParseFromString(request.SerializeToString())
        assert again == request and self.path == "/v1/traces"
        with lock:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    received.extend((resource.resource, span) for span in scope.spans)
        answer = trace_service_pb2.ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def attributes(all_of_them):
    def value(any_value):
        return getattr(any_value, any_value.WhichOneof("value"))

    return {pair.key: value(pair.value) for pair in all_of_them}


def call(port, method, path, body=None, headers=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json", **(headers or {})}, method=method
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def spans_of(job, count):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        with lock:
            found = [(r, s) for r, s in received if attributes(s.attributes)[messaging.MESSAGING_MESSAGE_ID] == job]
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{len(found)} of {count} spans of {job}")


def one(spans, operation):
    name = messaging.MESSAGING_OPERATION_NAME
    found = [span for _, span in spans if attributes(span.attributes)[name] == operation]
    assert len(found) == 1, (operation, found)
    return found[0]


def main():
    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    print(collector.server_address[1], flush=True)
    port = int(sys.stdin.readline())

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("judge")

    with tracer.start_as_current_span("send mails", kind=trace.SpanKind.PRODUCER) as producer:
        headers = {}
        propagate.inject(headers)
        assert "traceparent" in headers
        job = call(port, "POST", "/queues/mails/jobs", {"data": 1, "maxAttempts": 1}, headers)["id"]
    pulled = call(port, "GET", "/queues/mails/jobs?timeout=60000")["job"]
    assert pulled["id"] == job, pulled
    context = propagate.extract(pulled)
    with tracer.start_as_current_span("process mails", context=context, kind=trace.SpanKind.CONSUMER) as consumer:
        call(port, "POST", f"/jobs/{job}/fail", {"error": "no such user"})

    made = producer.get_span_context()
    assert consumer.get_span_context().trace_id == made.trace_id
    spans = spans_of(job, 4)
    assert len(spans) == 4
    trace_id = made.trace_id.to_bytes(16, "big")
    for resource, span in spans:
        assert span.trace_id == trace_id
        told = attributes(span.attributes)
        assert told[messaging.MESSAGING_SYSTEM] == "corq"
        assert told[messaging.MESSAGING_DESTINATION_NAME] == "mails"
        server = attributes(resource.attributes)
        assert server["service.name"] == "corq" and server["service.instance.id"] and server["service.version"]
        # Both clocks are that of this machine.
        assert abs(span.start_time_unix_nano - producer.start_time) < DEADLINE_S * 10**9
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    enqueue, wait, run, settle = (one(spans, name) for name in ("enqueue", "wait", "run", "settle"))
    assert enqueue.parent_span_id == made.span_id.to_bytes(8, "big")
    assert wait.parent_span_id == run.parent_span_id == enqueue.span_id
    assert settle.parent_span_id == run.span_id
    kinds = [type(enqueue).SpanKind.Name(span.kind) for span in (enqueue, wait, run, settle)]
    assert kinds == ["SPAN_KIND_SERVER", "SPAN_KIND_INTERNAL", "SPAN_KIND_INTERNAL", "SPAN_KIND_SERVER"], kinds
    types = messaging.MessagingOperationTypeValues
    kind = messaging.MESSAGING_OPERATION_TYPE
    assert attributes(enqueue.attributes)[kind] == types.SEND.value
    assert attributes(run.attributes)[kind] == types.PROCESS.value
    assert attributes(settle.attributes)[kind] == types.SETTLE.value
    assert attributes(enqueue.attributes)[messaging.MESSAGING_MESSAGE_BODY_SIZE] == 1
    assert run.status.code == run.status.STATUS_CODE_ERROR and run.status.message == "no such user"
    assert attributes(run.attributes)[ERROR_TYPE] == "failed"

    # A client that does not record its trace.
    headers = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-00"}
    silent = call(port, "POST", "/queues/mails/jobs", {"data": 1}, headers)["id"]
    last = call(port, "POST", "/queues/mails/jobs", {"data": 1})["id"]
    spans_of(last, 1)
    with lock:
        told = {attributes(span.attributes)[messaging.MESSAGING_MESSAGE_ID] for _, span in received}
    assert silent not in told and last in told


main()
