// Prints how Go builds a probe's URL and follows a Location: one JSON row a line, for tests/data/prober/urls.jsonl.
// The values there come from Go 1.19: `go run tests/tools/go_urls.go > tests/data/prober/urls.jsonl`.
package main

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"strings"
)

type probe struct {
	Path   string `json:"path"`
	Host   string `json:"host"`
	URL    string `json:"url,omitempty"`
	Target string `json:"target,omitempty"`
	Name   string `json:"hostname,omitempty"`
	Error  string `json:"error,omitempty"`
}

type join struct {
	Base     string `json:"base"`
	Location string `json:"location"`
	URL      string `json:"url,omitempty"`
	Name     string `json:"hostname"`
	Error    string `json:"error,omitempty"`
}

func build(host, path string) probe {
	row := probe{Path: path, Host: host}
	u, err := url.Parse(path)
	if err != nil {
		u = &url.URL{Path: path}
	}
	u.Scheme, u.Host = "http", net.JoinHostPort(host, "80")
	again, err := url.Parse(u.String())
	if err != nil {
		row.Error = err.Error()
		return row
	}
	row.URL, row.Target, row.Name = again.String(), again.RequestURI(), again.Hostname()
	return row
}

func follow(base, location string) join {
	row := join{Base: base, Location: location}
	u, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	next, err := u.Parse(location)
	if err != nil {
		row.Error = err.Error()
		return row
	}
	row.URL, row.Name = next.String(), next.Hostname()
	return row
}

func main() {
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	paths := []string{"", "/", "path", "/path?bar", "/a b", "/%zz", "/x#frag", "//foo/bar", "///foo", "////a", "//u:p@foo/bar",
		":9/x", "/ü", "*", "/*", "?q", "/?", "/x?", "/x??", "/x?a=b&c=%zz", "/x?a b", "/x?ü", "#f", "/x#", "/x#a b", "/x#%zz",
		"/a/../b", "/./a", "/a%2Fb", "/a%2fb", "/%41", "/a+b", "/a%20b", "/a'b(c)!*", "/[x]", "/a;b=c,d", "/a|b", "/a^b`{}",
		"/a\"b", "/<a>", "/a\\b", "/a\tb", "/a\x7fb", "/a\nb", "/%", "/%4", "/a%00b", "/%FF", "/x?a#b?c", "/x%3Fy", "/x%23y",
		"http://other:1/x", "HTTP://Other/x", "http:/x", "http:x", "mailto:x", "mailto:x?y#z", "http:", "http://", "http:///x",
		"https://a@b/x", "https://a:@b/x", "https://:p@b/x", "//a:b%40c@d/x", "//a b@c/x", "//a/b", "//[::1]:5/x", "//[::1/x",
		"//a:x/y", "//a:/y", "//%41/x", "//%ff/x", "//a b/x", "1:2", "a:b/c", "a/b:c", "./a:b", "-a:b", "a+b-c.d:e", "a_b:c", ":", "://",
		"?", "??", "/?#", "x y", "a@b", "/a@b:c", "/ünï/ö?ä#ß", "/a%zzb?c=d", "%zz?x", "/~a-b_c.d", "/a=b&c$d", "/日本", "/%E6%97%A5", "/\xff",
		"//user@/x", "//@/x", "/x?y#z#w", "//a<b>/x", "//a\"b/x", "//[fe80::1%25en0]/x", "//[fe80::1%en0]/x"}
	for _, path := range paths {
		if strings.ToValidUTF8(path, "") == path {
			out.Encode(build("h", path))
		}
	}
	for _, host := range []string{"10.0.0.1", "::1", "fe80::1%eth0", "localhost", "Host", "a b", "a/b", "a?b", "a#b", "a%b", "ü", "a@b", "[::1]", "", "a\"b", "a_b", "x:y"} {
		out.Encode(build(host, "/"))
	}
	bases := []string{"http://h:80/a/b/c?q#f", "http://h", "http://u:p@h/x", "https://[::1]:8443/a/"}
	locations := []string{"/", "x", "./x", "../x", "../../x", "../../../x", "../../..", "..", ".", "./", "?y", "#g", "", "//other/y", "//h:81/y",
		"http://h/y", "https://h:444", "HTTP://H/", "ftp://h/", "mailto:x", "g;x=1/../y", "/a//b", "//", "///x", "/../../a", "/..//a", "/./a", "/a/./b/../c",
		"/.", "/..", "/a/.", "/a/..", "a/b/", "%zz", "/%2e%2e/x", "/a%2Fb/../c", "a b", "/ü", "http:x", "http:/x", "http://", "h:80", ":80", "/x?a b#c d",
		"http://h:x/", "http://[::1/", "http://a@h/", "//u2@h/", "x?y/../z", "...", "a/...", "/a/b//../c", "x/..", "x/.", "//h", "//h?q", "/x#", "?", "[::1]", "[::1]:9/x"}
	for _, base := range bases {
		for _, location := range locations {
			out.Encode(follow(base, location))
		}
	}
}
