"""Storage with the protocol of S3 on a port of its own, which compares signatures. Prints port, key id and key, then does what it
is asked for, one line each: `keys`, `put KEY TEXT`, `flip KEY`; `keep` forbids to delete."""

import json
import os
import sys

# Until the user is made, there is no key. Then every request is checked.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"

import boto3
from flask import request
from moto.iam import access_control
from moto.server import ThreadedMotoServer

BUCKET = "corq-backups"
POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:*", "iam:*"], "Resource": "*"}],
}
KEEPING = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Deny", "Action": "s3:DeleteObject*", "Resource": "*"}],
}

plain = access_control.IAMRequestBase.__init__


def as_it_came(self, **named):
    # What is signed is percent-encoded; moto compares what it has decoded, and refuses every prefix with a slash.
    plain(self, **{**named, "path": request.environ["RAW_URI"]})


access_control.IAMRequestBase.__init__ = as_it_came


def client(service, port, key_id, secret):
    return boto3.client(
        service,
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
    )


server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
iam = client("iam", port, "none", "none")
iam.create_user(UserName="corq")
iam.put_user_policy(UserName="corq", PolicyName="all", PolicyDocument=json.dumps(POLICY))
key = iam.create_access_key(UserName="corq")["AccessKey"]
client("s3", port, "none", "none").create_bucket(Bucket=BUCKET)
s3 = client("s3", port, key["AccessKeyId"], key["SecretAccessKey"])
print(port, key["AccessKeyId"], key["SecretAccessKey"], flush=True)

for line in sys.stdin:
    words = line.rstrip("\n").split(" ", 2)
    if words[0] == "keys":
        found = s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        print(json.dumps([entry["Key"] for entry in found]), flush=True)
    elif words[0] == "put":
        s3.put_object(Bucket=BUCKET, Key=words[1], Body=words[2].encode())
        print("done", flush=True)
    elif words[0] == "flip":
        body = bytearray(s3.get_object(Bucket=BUCKET, Key=words[1])["Body"].read())
        body[len(body) // 2] ^= 1
        s3.put_object(Bucket=BUCKET, Key=words[1], Body=bytes(body))
        print("done", flush=True)
    elif words[0] == "keep":
        of_user = client("iam", port, key["AccessKeyId"], key["SecretAccessKey"])
        of_user.put_user_policy(UserName="corq", PolicyName="keep", PolicyDocument=json.dumps(KEEPING))
        print("done", flush=True)
server.stop()
