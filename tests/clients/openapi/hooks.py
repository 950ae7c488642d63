"""What the document cannot say of a valid request, told to schemathesis."""

import http.client

import schemathesis

goes_on = http.client.HTTPResponse._check_close


def ends(response):
    """After an upgrade a connection speaks HTTP no more, which Python's client does not know."""
    return response.status == 101 or goes_on(response)


http.client.HTTPResponse._check_close = ends


@schemathesis.hook
def before_call(context, case, kwargs):
    label = case.operation.label
    if label == "GET /queues/{queue}/jobs":
        # Long polls of an empty queue last as long as they say.
        timeout = str((case.query or {}).get("timeout"))
        if timeout.isdigit() and 20 < int(timeout) <= 60_000:
            case.query["timeout"] = 20
    if label.endswith(("/wait", "/pull-batch")) and isinstance(case.body, dict):
        # Nor is there time for the waits that last as long as they do if a request does not say.
        timeout = case.body.get("timeout", 30_000)
        most = 600_000 if label.endswith("/wait") else 60_000
        if isinstance(timeout, int) and not isinstance(timeout, bool) and 20 < timeout <= most:
            case.body = {**case.body, "timeout": 20}
    if label == "POST /queues/{queue}/jobs" and isinstance(case.body, dict):
        # A push may only name jobs that there are.
        named = case.body.get("dependsOn")
        if isinstance(named, list) and all(isinstance(job, str) for job in named):
            case.body = {**case.body, "dependsOn": []}
        # The payload may be no larger than the push itself says, in bytes of MessagePack.
        size = case.body.get("sizeLimit")
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 100_000:
            case.body = {**case.body, "sizeLimit": 0}
        # Which of two bounds holds for a priority, the document says in words only.
        priority = case.body.get("priority")
        is_integer = isinstance(priority, int) and not isinstance(priority, bool)
        if is_integer and -1_000_000 <= priority <= 2_097_151:
            grouped = isinstance(case.body.get("groupId"), str)
            fits = priority if grouped else min(priority, 1_000_000)
            case.body = {**case.body, "priority": fits}
        # A series has one cadence.
        repeat = case.body.get("repeat")
        if isinstance(repeat, dict) and repeat.get("every") is not None and "pattern" in repeat:
            rest = {name: value for name, value in repeat.items() if name != "pattern"}
            case.body = {**case.body, "repeat": rest}
        # One of the two there must be.
        if isinstance(repeat, dict) and repeat.get("every") is None and repeat.get("pattern") is None:
            repeat = {**repeat, "pattern": "0 0 * * *"}
            case.body = {**case.body, "repeat": repeat}
        # What an expression, a zone and two days mean together, the document says in words only.
        pattern = repeat.get("pattern") if isinstance(repeat, dict) else None
        if isinstance(pattern, str) and 0 < len(pattern) <= 4096 and repeat.get("every") is None:
            sound = {**repeat, "pattern": "0 0 * * *"}
            if isinstance(repeat.get("tz"), str) and 0 < len(repeat["tz"]) <= 256:
                sound["tz"] = "UTC"
            if isinstance(repeat.get("endDate"), int) and not isinstance(repeat["endDate"], bool):
                if 0 <= repeat["endDate"] <= 9_007_199_254_740_991:
                    sound.pop("endDate")
            case.body = {**case.body, "repeat": sound}
        # What stands in a trace's context, the document says in words only.
        traces = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}
        for field, sound in traces.items():
            value = case.body.get(field)
            if isinstance(value, str) and (len(value) >= 55 if field == "traceparent" else len(value) <= 512):
                case.body = {**case.body, field: sound}
        # A group that earlier pushes filled has no room, and says so.
        size = case.body.get("groupMaxSize")
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 1_000_000:
            case.body = {**case.body, "groupMaxSize": 1_000_000}
