package serial

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/linetime"
)

// followed returns a log and a follower of its file.
func followed(t *testing.T, max int64) (*Log, *Follower) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "console")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLog(f, max)
	if err != nil {
		t.Fatal(err)
	}
	r, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); r.Close() })
	return l, NewFollower(r)
}

func readNew(t *testing.T, f *Follower) string {
	t.Helper()
	var out strings.Builder
	for {
		b := make([]byte, 100)
		n, err := f.Read(b)
		out.Write(b[:n])
		if errors.Is(err, io.EOF) {
			return string(linetime.Plain([]byte(out.String())))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFollowerSeesEachLineOnce(t *testing.T) {
	l, f := followed(t, 4000)
	var want, got strings.Builder
	for i := range 2000 { // the log drops its older half many times
		line := fmt.Sprintf("[%8d] a line of the console\n", i)
		want.WriteString(line)
		if _, err := l.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 {
			got.WriteString(readNew(t, f))
		}
	}
	got.WriteString(readNew(t, f))
	if got.String() != want.String() {
		t.Errorf("%d bytes of %d", got.Len(), want.Len())
	}
}

func TestAFollowerThatIsLateGoesOnWithWhatIsThere(t *testing.T) {
	l, f := followed(t, 1000)
	fmt.Fprintln(l, "first")
	readNew(t, f)
	for i := range 100 {
		fmt.Fprintf(l, "line %d of many\n", i)
	}
	if got := readNew(t, f); !strings.HasSuffix(got, "line 99 of many\n") {
		t.Errorf("%q", got)
	}
}

func TestAFollowerOfTheLastLines(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "three\n", 2: "two\nthree\n", 9: "one\ntwo\nthree\n"} {
		l, f := followed(t, 1000)
		fmt.Fprint(l, "one\ntwo\nthree\n")
		if err := f.Skip(n); err != nil {
			t.Fatal(err)
		}
		if got := readNew(t, f); got != want {
			t.Errorf("the last %d: %q, want %q", n, got, want)
		}
		fmt.Fprint(l, "four")
		if err := f.Skip(0); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(l, "five\n")
		if got := readNew(t, f); got != "five\n" {
			t.Errorf("then %q", got)
		}
	}
}
