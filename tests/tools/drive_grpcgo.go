// Drives a CRI runtime as grpc-go clients do it (kubelet, crictl), to be recorded by record.py.
//
//	drive_grpcgo unix:///tmp/x.sock
//
// Builds on Debian without a module proxy: `apt-get install golang-go golang-google-grpc-dev`, then
// `GO111MODULE=off GOPATH=/usr/share/gocode go build drive_grpcgo.go`. Messages are put together by hand, so that no
// generated code is needed. The pod is left to the rig that made it, tests/lab/containerd.sh.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// raw passes messages as they are.
type raw struct{}

func (raw) Marshal(v interface{}) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v interface{}) error { *v.(*[]byte) = append([]byte{}, data...); return nil }
func (raw) Name() string                               { return "proto" }
func (raw) String() string                             { return "proto" }

// field is a length-delimited one of a message; all of ours are shorter than 16 KiB.
func field(number int, value string) string {
	n := len(value)
	if n < 128 {
		return string([]byte{byte(number<<3 | 2), byte(n)}) + value
	}
	return string([]byte{byte(number<<3 | 2), byte(n&127 | 128), byte(n >> 7)}) + value
}

func execSync(container string, timeout byte, command ...string) string {
	message := field(1, container)
	for _, arg := range command {
		message += field(2, arg)
	}
	return message + string([]byte{3 << 3, timeout})
}

// id is the first field of an answer that has an id there.
func id(answer string) string { return answer[2 : 2+int(answer[1])] }

func main() {
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure(), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	try := func(ctx context.Context, method, message string) (string, error) {
		request, answer := []byte(message), []byte{}
		err := connection.Invoke(ctx, "/runtime.v1.RuntimeService/"+method, &request, &answer)
		return string(answer), err
	}
	within := func(limit time.Duration, method, message string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return try(ctx, method, message)
	}
	call := func(method, message string) string {
		answer, err := within(2*time.Minute, method, message)
		if err != nil {
			log.Fatal(method, ": ", err)
		}
		return answer
	}

	call("Version", field(1, "0.1.0"))
	call("Status", "")
	uid := fmt.Sprintf("uid-go-%d", os.Getpid())
	label := func(key, value string) string { return field(6, field(1, key)+field(2, value)) }
	config := field(1, field(1, "go")+field(2, uid)+field(3, "default")) + field(2, "go") +
		label("io.kubernetes.pod.name", "go") + label("io.kubernetes.pod.namespace", "default") +
		label("io.kubernetes.pod.uid", uid) + field(8, "")
	pod := id(call("RunPodSandbox", field(1, config)))
	container := id(call("CreateContainer", field(1, pod)+
		field(2, field(1, field(1, "app"))+field(2, field(1, "localhost/busybox:1"))+field(3, "sleep")+
			field(3, "100000")+field(6, field(1, "TOKEN")+field(2, "not-a-real-one")))+
		field(3, config)))
	call("StartContainer", field(1, container))

	// A probe now and then, between the kubelet's lists.
	for round := 0; round < 5; round++ {
		call("ListPodSandbox", "")
		call("ListContainers", "")
		call("PodSandboxStatus", field(1, pod))
		call("ExecSync", execSync(container, 1, "cat", "/etc/hostname"))
	}
	// Several at once, with a trace, some of which answer before others.
	var all sync.WaitGroup
	for at := 0; at < 8; at++ {
		all.Add(1)
		go func(at int) {
			defer all.Done()
			trace := fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333%d-01", at)
			ctx, cancel := context.WithTimeout(context.Background(), 130*time.Second)
			defer cancel()
			try(metadata.AppendToOutgoingContext(ctx, "traceparent", trace), "ExecSync",
				execSync(container, 9, "sh", "-c", fmt.Sprintf("sleep 0.%d; echo %d; exit %d", 5-at%4, at, at)))
		}(at)
	}
	all.Wait()
	// The runtime's timeout, the client's, an unknown container, a call taken back, a method that is not there.
	_, err = within(131*time.Second, "ExecSync", execSync(container, 1, "sleep", "5"))
	fmt.Println(err)
	_, err = within(300*time.Millisecond, "ExecSync", execSync(container, 9, "sleep", "5"))
	fmt.Println(err)
	_, err = within(time.Second, "ContainerStatus", field(1, "unknown"))
	fmt.Println(err)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(200*time.Millisecond, cancel)
	_, err = try(ctx, "ExecSync", execSync(container, 0, "sleep", "5"))
	fmt.Println(err)
	_, err = within(time.Second, "CheckpointContainer", "")
	fmt.Println(err)
	call("StopContainer", field(1, container))
	call("RemoveContainer", field(1, container))
	call("StopPodSandbox", field(1, pod))
	call("RemovePodSandbox", field(1, pod))
}
