package msgwire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

func TestMessages(t *testing.T) {
	var b bytes.Buffer
	sent := &agentv1.IdentityRequest{SandboxId: "sb-1", Entropy: []byte("64 bytes"), Env: map[string]string{"A": "b"}}
	if err := Write(&b, sent, MaxIdentityBytes); err != nil {
		t.Fatal(err)
	}
	whole := bytes.Clone(b.Bytes())
	var got agentv1.IdentityRequest
	if err := Read(&b, &got, MaxIdentityBytes); err != nil || !proto.Equal(sent, &got) || b.Len() != 0 {
		t.Errorf("got %v, %v; %d bytes left", &got, err, b.Len())
	}
	for n := range len(whole) {
		err := Read(bytes.NewReader(whole[:n]), &got, MaxIdentityBytes)
		if want := io.ErrUnexpectedEOF; n > 0 && !errors.Is(err, want) || n == 0 && !errors.Is(err, io.EOF) {
			t.Errorf("%d of %d bytes: got %v", n, len(whole), err)
		}
	}
	if err := Read(strings.NewReader("\xff\xff\xff\xff"), &got, MaxIdentityBytes); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("4 GiB: got %v", err)
	}
	if err := Write(io.Discard, &agentv1.IdentityRequest{Hostname: strings.Repeat("x", MaxIdentityBytes)}, MaxIdentityBytes); err == nil {
		t.Error("a message over the limit was sent")
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	_ = Write(&b, &agentv1.IdentityAnswer{Refused: "no"}, MaxIdentityBytes)
	f.Add(b.Bytes())
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m agentv1.IdentityAnswer
		if err := Read(bytes.NewReader(b), &m, MaxIdentityBytes); err != nil {
			return
		}
		var again bytes.Buffer
		if err := Write(&again, &m, MaxIdentityBytes); err != nil {
			t.Fatal(err)
		}
	})
}
