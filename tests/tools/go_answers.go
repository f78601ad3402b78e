// Serves what each row of tests/data/prober/answers.jsonl (standard input) sends, lets Go's own client ask for it as the
// kubelet does, and prints the rows that Go judges otherwise. Rows with "since" come from a Go newer than 1.19.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

type row struct {
	Name, Sends, Since, Failure, Fault, Body string
	Holds                                    bool
	Status                                   int
}

func check(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

func ask(url string) row {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 1 << 20}
	client := &http.Client{Timeout: 700 * time.Millisecond, Transport: transport, CheckRedirect: check}
	response, err := client.Get(url)
	if err != nil {
		return row{Failure: err.Error()}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(&io.LimitedReader{R: response.Body, N: 10240})
	if err != nil {
		return row{Fault: err.Error()}
	}
	return row{Status: response.StatusCode, Body: string(body)}
}

func serve(listener net.Listener, r row) {
	bytes := make([]byte, 0, len(r.Sends))
	for _, letter := range r.Sends {
		bytes = append(bytes, byte(letter))
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			connection.Read(make([]byte, 65536))
			connection.Write(bytes)
			if r.Holds {
				time.Sleep(1200 * time.Millisecond)
			}
			connection.Close()
		}()
	}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var wanted row
		if err := json.Unmarshal(lines.Bytes(), &wanted); err != nil {
			panic(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		go serve(listener, wanted)
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		got := ask("http://127.0.0.1:" + port + "/")
		got.Failure = strings.ReplaceAll(got.Failure, port, "PORT")
		if wanted.Failure != got.Failure || wanted.Fault != got.Fault || wanted.Status != got.Status || wanted.Body != got.Body {
			fmt.Printf("%s (since %q): %+v, but the row says %+v\n", wanted.Name, wanted.Since, got, wanted)
		}
		listener.Close()
	}
}
