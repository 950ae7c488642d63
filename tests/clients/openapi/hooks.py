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
        # A group that earlier pushes filled has no room, and says so.
        size = case.body.get("groupMaxSize")
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 1_000_000:
            case.body = {**case.body, "groupMaxSize": 1_000_000}
