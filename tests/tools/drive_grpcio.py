#!/usr/bin/env python3
"""Drives a CRI runtime as Python's grpcio (C-core) does it, to be recorded by record.py.

    drive_grpcio.py unix:///tmp/x.sock

Needs grpcio and grpcio-tools, and the images of tests/lab/containerd.sh. Makes a pod with one container, and removes
it: calls that answer, an error, an ExecSync that runs into its timeout, several in flight, one that is cancelled, one
that the runtime does not know. C-core sends the socket's path as `:authority`, which h2-based proxies refuse.
"""

import os
import sys
import tempfile
import time

import grpc
from grpc_tools import protoc

PROTO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../proto")


def generate():
    out = tempfile.mkdtemp()
    if protoc.main(["", f"-I{PROTO}", f"--python_out={out}", f"--grpc_python_out={out}", "cri.proto"]):
        sys.exit("protoc failed")
    sys.path.insert(0, out)


def refused(call, request, **options):
    try:
        call(request, **options)
    except grpc.RpcError as error:
        print("refused:", error.code(), error.details())
    else:
        sys.exit("should have been refused")


def main(target):
    generate()
    import cri_pb2 as pb
    import cri_pb2_grpc as rpc

    with grpc.insecure_channel(target) as channel:
        cri = rpc.RuntimeServiceStub(channel)
        print(cri.Version(pb.VersionRequest()).runtime_name)
        name = "recorded"
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default"),
            hostname=name,
            labels={"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": f"uid-{name}"},
            annotations={"liveness.criprobe.dev/app": '{"exec": {"command": ["cat", "/tmp/healthy"]}}'},
            linux=pb.LinuxPodSandboxConfig(),
        )
        pod = cri.RunPodSandbox(pb.RunPodSandboxRequest(config=config)).pod_sandbox_id
        container = cri.CreateContainer(
            pb.CreateContainerRequest(
                pod_sandbox_id=pod,
                config=pb.ContainerConfig(
                    metadata=pb.ContainerMetadata(name="app"),
                    image=pb.ImageSpec(image="localhost/busybox:1"),
                    command=["sh", "-c", "touch /tmp/healthy; sleep 100000"],
                    envs=[pb.KeyValue(key="TOKEN", value=b"not-a-real-one")],
                    labels={"io.kubernetes.container.name": "app"},
                ),
                sandbox_config=config,
            )
        ).container_id
        cri.StartContainer(pb.StartContainerRequest(container_id=container))

        def exec_sync(*command, timeout=10):
            return pb.ExecSyncRequest(container_id=container, cmd=command, timeout=timeout)

        print(cri.ExecSync(exec_sync("cat", "/tmp/healthy"), timeout=130).exit_code)
        print(cri.ExecSync(exec_sync("sh", "-c", "echo out; echo err >&2; exit 3"), timeout=130).exit_code)
        refused(cri.ExecSync, exec_sync("sleep", "5", timeout=1), timeout=130)
        refused(cri.ExecSync, pb.ExecSyncRequest(container_id="unknown", cmd=["true"]), timeout=130)
        refused(cri.Exec, pb.ExecRequest(container_id="unknown", cmd=["true"], stdout=True), timeout=130)
        refused(cri.ListContainerStats, pb.ListContainerStatsRequest(), metadata=[("grpc-timeout", "1n")], timeout=1e-9)
        in_flight = [cri.ExecSync.future(exec_sync("sh", "-c", f"sleep 0.{3 - at}; head -c {at}000 /dev/zero"), timeout=130) for at in range(3)]
        in_flight += [cri.ListContainers.future(pb.ListContainersRequest(), timeout=120) for _ in range(3)]
        print([len(call.result().SerializeToString()) for call in in_flight])
        cancelled = cri.ExecSync.future(exec_sync("sleep", "5"), timeout=130)
        time.sleep(0.3)
        cancelled.cancel()
        try:
            print(list(cri.GetContainerEvents(pb.GetEventsRequest())))
        except grpc.RpcError as error:
            print("refused:", error.code())
        cri.PodSandboxStatus(pb.PodSandboxStatusRequest(pod_sandbox_id=pod), timeout=120)
        cri.StopContainer(pb.StopContainerRequest(container_id=container), timeout=120)
        cri.RemoveContainer(pb.RemoveContainerRequest(container_id=container), timeout=120)
        cri.StopPodSandbox(pb.StopPodSandboxRequest(pod_sandbox_id=pod), timeout=120)
        cri.RemovePodSandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=pod), timeout=120)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
