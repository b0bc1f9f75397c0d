package volumewire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

const plain = `{"name":"a","path":"/a","kind":"file","size":1,"mode":420,"uid":1000,"gid":1000,"mtime_ms":1}`

// No answer of a guest passes the check with values that the host cannot use.
func FuzzParseEntry(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(`{"name":"a","path":"/a","kind":"directory","mode":99999}`))
	f.Add([]byte(`{"name":"a","path":"/a","kind":"symlink","target":"../b","atime_ms":-9223372036854775808}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEntry(b)
		if err != nil {
			return
		}
		for _, at := range []int64{e.Atime, e.Mtime, e.Ctime} {
			if _, err := json.Marshal(time.UnixMilli(at).UTC()); err != nil {
				t.Fatal(err)
			}
		}
		if e.Size < 0 || e.Mode > MaxMode || len(e.Name) > maxName || !strings.HasPrefix(e.Path, "/") {
			t.Fatalf("passed: %+v", e)
		}
	})
}

func TestAnswersOfALiar(t *testing.T) {
	if _, err := ParseEntry([]byte(plain)); err != nil {
		t.Fatal(err)
	}
	with := func(rest string) string { return plain[:len(plain)-1] + "," + rest + "}" }
	for what, answer := range map[string]string{
		"kind":  with(`"kind":"door"`),
		"size":  with(`"size":-1`),
		"mode":  with(`"mode":4096`),
		"owner": with(`"uid":4294967295`),
		"path":  with(`"path":"a"`),
		"name":  with(`"name":"` + strings.Repeat("x", maxName+1) + `"`),
		"link":  with(`"target":"` + strings.Repeat("x", 3*MaxPath+1) + `"`),
		"time":  with(`"ctime_ms":9223372036854775807`),
		"JSON":  `{"name":`,
		"bytes": strings.Repeat(" ", 64<<10+1),
	} {
		if _, err := ParseEntry([]byte(answer)); err == nil || !strings.Contains(err.Error(), "broke its protocol") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, answer := range map[string]string{
		"one of two": "[" + plain + "," + with(`"size":-1`) + "]",
		"too many":   "[" + strings.Repeat(plain+",", MaxEntries) + plain + "]",
		"too long":   strings.Repeat(" ", MaxListBytes+1),
		"no list":    plain,
	} {
		if _, err := ParseList([]byte(answer)); err == nil || !strings.Contains(err.Error(), "broke its protocol") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
