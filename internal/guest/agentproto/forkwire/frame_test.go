package forkwire

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const token = "0123456789abcdef0123456789abcdef"

// golden are messages as written by the first version.
var golden = []struct {
	name   string
	msg    any
	result string
}{
	{"fork", Request{Op: OpFork, N: 3, Token: token, Again: true}, ""},
	{"wait", Request{Op: OpWait, IDs: []string{"sb-1-0001"}, TimeoutMS: 1500}, ""},
	{"exit", Request{Op: OpExit, Code: 3, Bytes: 6}, "result"},
	{"forked", Answer{Children: []Child{{Index: 1, ID: "sb-1-0001"}, {Index: 2, Error: "not enough memory"}}}, ""},
	{"child", Answer{Index: 2, ID: "sb-1-0002", Parent: "gf-sb-0-0001-01234567"}, ""},
	{"ended", Answer{Ended: &Ended{ID: "sb-1-0001", Index: 1, Status: Exited, Code: 3}, Bytes: 6}, "result"},
	{"died", Answer{Ended: &Ended{ID: "sb-1-0001", Index: 1, Status: Died, Code: -1, Reason: "signal: killed"}}, ""},
	{"error", Answer{Error: Errorf(Denied, "this sandbox may not fork")}, ""},
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			var b bytes.Buffer
			var back any
			var result []byte
			var err error
			switch m := g.msg.(type) {
			case Request:
				if err = WriteRequest(&b, m, []byte(g.result)); err == nil {
					compare(t, g.name, b.Bytes())
					back, result, err = ReadRequest(NewReader(&b))
				}
			case Answer:
				if err = WriteAnswer(&b, m, []byte(g.result)); err == nil {
					compare(t, g.name, b.Bytes())
					back, result, err = ReadAnswer(NewReader(&b))
				}
			}
			if err != nil || !reflect.DeepEqual(back, g.msg) || string(result) != g.result {
				t.Errorf("read back %+v, %q, %v", back, result, err)
			}
		})
	}
}

func compare(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("wrote %q, the golden file has %q", got, want)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"empty", "", "EOF"},
		{"no end of line", `{"op":"fork"}`, "unexpected EOF"},
		{"no JSON", "hello\n", "no JSON"},
		{"another form", `[1]` + "\n", "no JSON object"},
		{"a line without end", strings.Repeat("a", maxRequestLine+1), "longer than 65536"},
		{"a result that is too large", `{"op":"exit","bytes":1048577}` + "\n", "at most 1048576"},
		{"a result of less than nothing", `{"op":"exit","bytes":-1}` + "\n", "at most 1048576"},
		{"a result that ends early", `{"op":"exit","bytes":3}` + "\nab", "ends early"},
	} {
		if _, _, err := ReadRequest(NewReader(strings.NewReader(c.text))); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		req  Request
		says string // empty if it is valid
	}{
		{Request{Op: OpFork, N: 1, Token: token}, ""},
		{Request{Op: OpFork, N: MaxChildren, Token: token}, ""},
		{Request{Op: OpWait}, ""},
		{Request{Op: OpExit, Code: 255, Bytes: MaxResult}, ""},
		{Request{Op: "dance"}, "want fork, wait or exit"},
		{Request{Op: OpFork, Token: token}, "n is 0"},
		{Request{Op: OpFork, N: MaxChildren + 1, Token: token}, "want 1 to 1000"},
		{Request{Op: OpFork, N: 1}, "token"},
		{Request{Op: OpFork, N: 1, Token: "../../../etc/passwd"}, "token"},
		{Request{Op: OpFork, N: 1, Token: token, Bytes: 1}, "only an exit"},
		{Request{Op: OpWait, Bytes: 1}, "only an exit"},
		{Request{Op: OpWait, IDs: []string{"a/b"}}, "id is"},
		{Request{Op: OpWait, IDs: make([]string, maxIDs+1)}, "ids"},
		{Request{Op: OpWait, TimeoutMS: -1}, "timeout"},
		{Request{Op: OpWait, TimeoutMS: 1 << 60}, "timeout"},
		{Request{Op: OpExit, Code: 256}, "exit code"},
		{Request{Op: OpExit, Code: -1}, "exit code"},
		{Request{Op: OpExit, Bytes: MaxResult + 1}, "at most"},
	} {
		err := c.req.CheckFromAgent()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.req, err, c.says)
		}
	}
}

// FuzzRequest checks that a guest's request is read within its limits or refused, and that an
// accepted one is the same after being written again.
func FuzzRequest(f *testing.F) {
	for _, g := range golden {
		b, err := os.ReadFile(filepath.Join("testdata", g.name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req, result, err := ReadRequest(NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		if len(result) != req.Bytes || len(result) > MaxResult {
			t.Fatalf("a result of %d bytes, announced were %d", len(result), req.Bytes)
		}
		if req.CheckFromAgent() != nil {
			return
		}
		var again bytes.Buffer
		if err := WriteRequest(&again, req, result); err != nil {
			t.Fatal(err)
		}
		back, same, err := ReadRequest(NewReader(&again))
		if err != nil || !sameJSON(t, back, req) || !bytes.Equal(same, result) {
			t.Fatalf("read back %+v, %v, was %+v", back, err, req)
		}
	})
}

// FuzzAnswer covers answers from the host to the agent, and from the agent to programs.
func FuzzAnswer(f *testing.F) {
	for _, g := range golden {
		b, err := os.ReadFile(filepath.Join("testdata", g.name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, result, err := ReadAnswer(NewReader(bytes.NewReader(b)))
		if err == nil && (len(result) != a.Bytes || len(result) > MaxResult) {
			t.Fatalf("a result of %d bytes, announced were %d", len(result), a.Bytes)
		}
	})
}

// sameJSON treats an empty list like a missing one, as the wire does.
func sameJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}
