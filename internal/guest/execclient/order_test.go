package execclient

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// events has a letter for each event.
var events = map[byte]*process.ProcessEvent{
	's': {Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 1}}},
	'd': {Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{}}},
	'k': {Event: &process.ProcessEvent_Keepalive{}},
	'e': {Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Status: "exit status 0"}}},
	'l': {Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Status: strings.Repeat("x", maxStatus+1)}}},
	'u': {},
	'n': nil,
}

// accepted returns the number of events in correct order. The clock advances by a second at each
// dot.
func accepted(t *testing.T, letters string) int {
	var o Order
	now, n := time.Unix(1, 0), 0
	for i := range len(letters) {
		ev, known := events[letters[i]]
		if !known {
			now = now.Add(time.Second)
			continue
		}
		if err := o.Check(ev, now); err != nil {
			var broke *agentproto.Violation
			if !errors.As(err, &broke) {
				t.Errorf("%s: %v is no violation", letters, err)
			}
			return n
		}
		n++
	}
	return n
}

func TestOrder(t *testing.T) {
	burst := strings.Repeat("k", keepaliveBurst)
	for _, c := range []struct {
		letters string
		want    int
	}{
		{"se", 2}, {"sdkdkde", 7}, {"d", 0}, {"e", 0}, {"k", 0}, {"ss", 1}, {"sdsd", 2}, {"see", 2}, {"sed", 2}, {"sek", 2},
		{"su", 1}, {"sn", 1}, {"sl", 1}, {"s" + burst + "k", 1 + keepaliveBurst}, {"s" + burst + ".k.k.ke", 5 + keepaliveBurst},
	} {
		if got := accepted(t, c.letters); got != c.want {
			t.Errorf("%s: %d events are in order, want %d", c.letters, got, c.want)
		}
	}
}

// FuzzOrder checks the order against its definition: one start first, at most one end, last.
func FuzzOrder(f *testing.F) {
	f.Add("sddke")
	f.Add("sse")
	f.Add("sk.k.ked")
	f.Fuzz(func(t *testing.T, letters string) {
		n := accepted(t, letters)
		var in strings.Builder
		for i := 0; in.Len() < n; i++ {
			if _, known := events[letters[i]]; known {
				in.WriteByte(letters[i])
			}
		}
		got := in.String()
		if strings.Count(got, "s") > 1 || strings.ContainsAny(got, "uln") || n > 0 && got[0] != 's' {
			t.Fatalf("%q is in order", got)
		}
		if end := strings.IndexByte(got, 'e'); end >= 0 && end != n-1 {
			t.Fatalf("%q goes on after its end", got)
		}
	})
}
