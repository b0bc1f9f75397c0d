package records

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

const carriedID = "sb-aaaaaaaaaaaaaaaa"

func carriedRecord() Record {
	return Record{ID: carriedID, Template: "py", Version: version, EnvdToken: "token-of-it", Started: time.Unix(1, 0).UTC(),
		Metadata: map[string]string{"a": "b"}, Envs: map[string]string{"C": "d"}}
}

// A record goes from one daemon to another whole.
func TestARecordIsCarried(t *testing.T) {
	var stores []*Store
	for range 2 {
		s, _, err := Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	if b, token, err := stores[0].Carried(carriedID); len(b)+len(token) > 0 || err != nil {
		t.Errorf("without a record: %s, %q, %v", b, token, err)
	}
	if err := stores[0].Put(carriedRecord()); err != nil {
		t.Fatal(err)
	}
	b, token, err := stores[0].Carried(carriedID)
	if err != nil || token != "token-of-it" {
		t.Fatal(token, err)
	}
	for range 2 {
		if err := stores[1].Receive(carriedID, b); err != nil {
			t.Fatal(err)
		}
	}
	got, ok := stores[1].Get(carriedID)
	want, _ := json.Marshal(carriedRecord())
	if now, _ := json.Marshal(got); !ok || string(now) != string(want) {
		t.Errorf("got %s, want %s", now, want)
	}
	large := carriedRecord()
	large.Metadata["large"] = strings.Repeat("x", maxCarried)
	if err := stores[0].Put(large); err != nil {
		t.Fatal(err)
	}
	if _, _, err := stores[0].Carried(carriedID); err == nil {
		t.Error("a record that no daemon receives is carried")
	}
}

func TestRecordsThatAreNotReceived(t *testing.T) {
	for name, change := range map[string]func(*Record){
		"another sandbox":      func(r *Record) { r.ID = "sb-bbbbbbbbbbbbbbbb" },
		"no template":          func(r *Record) { r.Template = "" },
		"a later version":      func(r *Record) { r.Version = version + 1 },
		"an earlier version":   func(r *Record) { r.Version = 0 },
		"neither open nor not": func(r *Record) { r.EnvdToken = "" },
		"open with a token":    func(r *Record) { r.OpenAgent = true },
		"a header":             func(r *Record) { r.MaskHost = "a\r\nX: y" },
		"a long token":         func(r *Record) { r.EnvdToken = strings.Repeat("x", 600) },
		"too much":             func(r *Record) { r.Envs["C"] = strings.Repeat("x", maxCarried) },
	} {
		r := carriedRecord()
		change(&r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeCarried(carriedID, b); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// FuzzCarried decodes records of another daemon. An accepted one can be written, and is then accepted again.
func FuzzCarried(f *testing.F) {
	b, err := json.Marshal(carriedRecord())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"id":"sb-aaaaaaaaaaaaaaaa","template":"x","version":1,"open_agent":true,"network":{"a":[1]}}`))
	s, _, err := Open(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		if s.Receive(carriedID, record) != nil {
			return
		}
		again, token, err := s.Carried(carriedID)
		if err != nil && len(record) <= maxCarried/8 {
			t.Fatal(err)
		}
		r, _ := s.Get(carriedID)
		if r.ID != carriedID || r.OpenAgent == (token != "") {
			t.Fatalf("%+v", r)
		}
		if _, decodeErr := decodeCarried(carriedID, again); err == nil && decodeErr != nil {
			t.Fatal(decodeErr)
		}
	})
}
