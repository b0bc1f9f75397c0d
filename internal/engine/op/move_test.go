package op

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// FuzzHandover opens records of another daemon. An accepted record is of the sandbox that was asked for, can move on,
// and is accepted again after it was recorded here.
func FuzzHandover(f *testing.F) {
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	const id = "sb-aaaaaaaaaaaaaaaa"
	offer := func(record []byte) sandbox.Handover {
		return sandbox.Handover{ID: id, Owner: "acme", PausedIn: "pause-" + id + "-1", PausedHash: "sha256:0", Record: record}
	}
	whole := portable{
		Info: sandbox.Info{ID: id, Hostname: id, Owner: "acme", Status: sandbox.StatusPaused, SnapshotTag: "py",
			SnapshotHash: "sha256:1", PausedIn: "pause-" + id + "-1", PausedHash: "sha256:0", CreatedAt: now,
			Labels: map[string]string{"a": "b"}, TrafficToken: "t"},
		Who: sandbox.Identity{ID: id, MachineID: "0123456789abcdef0123456789abcdef", Env: map[string]string{"A": "b"}},
	}
	seed, err := json.Marshal(whole)
	if err != nil {
		f.Fatal(err)
	}
	if _, _, err := openHandover(offer(seed), now); err != nil {
		f.Fatalf("the seed is refused: %v", err)
	}
	f.Add(seed)
	f.Add([]byte(`{"info":{"ID":"sb-aaaaaaaaaaaaaaaa","Kin":{"may_fork":true}},"who":{}}`))
	f.Add([]byte(`{"info":{"SnapshotTag":"\u001b[2J"},"who":{"env":{"a=b":"c"}}}`))
	f.Fuzz(func(t *testing.T, record []byte) {
		info, who, err := openHandover(offer(record), now)
		if err != nil {
			return
		}
		if info.ID != id || info.Owner != "acme" || who.ID != id {
			t.Fatalf("it is of %s, owner %q, identity %s", info.ID, info.Owner, who.ID)
		}
		if again, err := sandbox.Portable(info); err != nil || !reflect.DeepEqual(again, info) {
			t.Fatalf("%+v is not portable: %v", info, err)
		}
		b, err := json.Marshal(portable{info, who})
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > sandbox.MaxHandover {
			return // escapes have made it longer
		}
		if _, _, err := openHandover(offer(b), now); err != nil {
			t.Fatalf("its own record is refused: %v", err)
		}
	})
}
