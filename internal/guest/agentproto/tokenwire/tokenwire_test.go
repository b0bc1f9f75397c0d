package tokenwire

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestMessagesOfTheWire(t *testing.T) {
	var b bytes.Buffer
	if err := WriteRequest(&b, Request{Audience: "https://sts.example"}); err != nil {
		t.Fatal(err)
	}
	if want := `{"audience":"https://sts.example"}` + "\n"; b.String() != want {
		t.Errorf("a request is %q, want %q", b.String(), want)
	}
	if r, err := ReadRequest(&b); err != nil || r.Audience != "https://sts.example" {
		t.Errorf("read %+v, %v", r, err)
	}
	for name, a := range map[string]Answer{
		`{"token":"x.y.z","expires":7}`:                       {Token: "x.y.z", Expires: 7},
		`{"error":{"code":"limit","message":"one a second"}}`: {Error: Errorf(Limit, "one a %s", "second")},
	} {
		b.Reset()
		if err := WriteAnswer(&b, a); err != nil || b.String() != name+"\n" {
			t.Errorf("an answer is %q, %v, want %q", b.String(), err, name)
		}
		if got, err := ReadAnswer(&b); err != nil || got.Token != a.Token || (got.Error == nil) != (a.Error == nil) {
			t.Errorf("read %+v, %v", got, err)
		}
	}
}

func TestBadMessagesAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"longer than": `{"audience":"` + strings.Repeat("a", maxRequest) + `"}` + "\n",
		"JSON":        "GET / HTTP/1.1\r\n",
		"unexpected":  `{"audience":"a"}`,
		"EOF":         "",
	} {
		if _, err := ReadRequest(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%.20q: %v, want %q", text, err, name)
		}
	}
	for _, text := range []string{"{}\n", `{"token":"a","error":{"code":"limit"}}` + "\n"} {
		if _, err := ReadAnswer(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// FuzzRequest reads what a hostile guest may send. At most maxRequest bytes are read.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{`{"audience":"a"}` + "\n", `{"audience":1}` + "\n", "{}\n", "\x00", strings.Repeat("[", 5000)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		req, err := ReadRequest(r)
		if read := len(b) - r.Len(); read > maxRequest {
			t.Fatalf("%d bytes were read", read)
		}
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := WriteRequest(&again, req); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadRequest(&again); again.Len() == 0 && err == nil && got != req {
			t.Fatalf("%+v became %+v", req, got)
		}
	})
}

// FuzzAnswer reads what a host of another version may send.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"token":"a","expires":1}` + "\n"))
	f.Add([]byte(`{"error":{"code":"limit","message":"m"}}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := ReadAnswer(io.MultiReader(bytes.NewReader(b))); err == nil && (a.Error == nil) == (a.Token == "") {
			t.Fatalf("%+v has both or none", a)
		}
	})
}
