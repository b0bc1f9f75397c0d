package handover

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestAStateArrivesWithItsFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var b Bundle
	type content struct{ Pipe, None FD }
	mem, err := b.write(content{b.Add(r), b.Add(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(Variable, strconv.Itoa(mem))
	s, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, still := os.LookupEnv(Variable); still {
		t.Error("the variable would reach children")
	}
	var got content
	if err := s.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if f, err := s.File(got.None, "none"); f != nil || err != nil {
		t.Errorf("no file: got %v, %v", f, err)
	}
	if f, err := s.File(got.Pipe, "pipe"); f == nil || err != nil {
		t.Errorf("the pipe: got %v, %v", f, err)
	}
	for _, fd := range []FD{got.Pipe, 1, 9999} { // taken, or never handed over
		if f, err := s.File(fd, "pipe"); f != nil || err == nil {
			t.Errorf("descriptor %d: got %v, %v", fd, f, err)
		}
	}
}

func TestAnAgentThatWasStartedAfreshHasNoState(t *testing.T) {
	if s, err := Take(); s != nil || err != nil {
		t.Errorf("got %v, %v", s, err)
	}
	for _, v := range []string{"", "x", "1", "-1"} {
		t.Setenv(Variable, v)
		if s, err := Take(); s != nil || err == nil {
			t.Errorf("%q: got %v, %v", v, s, err)
		}
	}
}

func TestOtherStatesAreRefused(t *testing.T) {
	for in, want := range map[string]string{
		`{"version":2}`:                        "version 2",
		`{"version":1,"files":[1]}`:            "descriptor 1",
		`{"version":1,"files":[7,7]}`:          "descriptor 7",
		`{`:                                    "unexpected end",
		strings.Repeat(" ", MaxState) + `{}  `: "more than",
	} {
		if s, err := decode(strings.NewReader(in)); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, %v, want %q", in, s, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"files":[3,4],"state":{"a":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(bytes.NewReader(b))
		if err != nil {
			return
		}
		for fd := range s.files {
			if fd < 3 {
				t.Errorf("accepted descriptor %d", fd)
			}
		}
		var v map[string]any
		_ = s.Decode(&v)
	})
}
