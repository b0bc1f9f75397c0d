package serial

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/linetime"
)

func TestSendRaisesTheTransmitInterrupt(t *testing.T) {
	var out bytes.Buffer
	irqs := 0
	u := New(&out, func() { irqs++ })
	u.Write(regIER, ierTHRE)
	if irqs != 1 || u.Read(regIIR) != iirFIFO|iirTHRE || u.Read(regIIR) != iirFIFO|iirNone {
		t.Fatal("enabling the interrupt on an empty transmitter must raise it once")
	}
	for _, c := range []byte("hello") {
		if u.Read(regLSR) != lsrIdle {
			t.Fatal("transmitter is never busy")
		}
		u.Write(regData, c)
	}
	if out.String() != "hello" || irqs != 6 {
		t.Fatalf("sent %q with %d interrupts", out.String(), irqs)
	}
}

func TestDivisorIsNotSent(t *testing.T) {
	var out bytes.Buffer
	u := New(&out, func() {})
	u.Write(regLCR, lcrDLAB)
	u.Write(regData, 'x')
	u.Write(regIER, 'y')
	if u.Read(regData) != 'x' || u.Read(regIER) != 'y' || out.Len() != 0 {
		t.Fatal("divisor latch is mixed up with data")
	}
}

func TestStateSurvivesRestore(t *testing.T) {
	u := New(&bytes.Buffer{}, func() {})
	u.Write(regIER, ierTHRE)
	u.Write(regSCR, 0x5a)
	irqs := 0
	v := New(&bytes.Buffer{}, func() { irqs++ })
	if err := v.RestoreState(u.SaveState()); err != nil {
		t.Fatal(err)
	}
	if v.Read(regSCR) != 0x5a || irqs != 1 {
		t.Fatalf("scratch %#x, %d interrupts; want the pending one raised again", v.Read(regSCR), irqs)
	}
	if v.RestoreState(nil) == nil {
		t.Fatal("an empty state was accepted")
	}
}

func TestLogKeepsTheNewestBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLog(f, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 500 {
		if _, err := l.Write([]byte(strings.Repeat(string(rune('a'+i%26)), 9) + "\n")); err != nil {
			t.Fatal(err)
		}
		if st, _ := os.Stat(path); st.Size() > 1000 {
			t.Fatalf("log grew to %d bytes", st.Size())
		}
	}
	b, _ := os.ReadFile(path)
	if last := strings.Repeat(string(rune('a'+499%26)), 9) + "\n"; !bytes.HasSuffix(b, []byte(last)) || len(b) < 400 {
		t.Fatalf("log of %d bytes does not end with the last line", len(b))
	}
}

// Each line has its time, also if it comes byte by byte. A guest cannot write a time.
func TestLinesHaveTimes(t *testing.T) {
	l, f := followed(t, 1000)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l.now = func() time.Time { return at }
	for _, c := range []byte("one\n\x1e0000000\n") {
		if _, err := l.Write([]byte{c}); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
	}
	b, err := f.all()
	if err != nil {
		t.Fatal(err)
	}
	v := linetime.View{Times: true}
	const want = "2026-01-02T03:04:05.000Z one\n2026-01-02T03:04:09.000Z ?0000000\n"
	if got := string(v.Append(nil, b)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzUART(f *testing.F) {
	f.Add([]byte{0, 'a', 3, 0x80, 1, 2})
	f.Fuzz(func(t *testing.T, ops []byte) {
		u := New(&bytes.Buffer{}, func() {})
		for i := 0; i+1 < len(ops); i += 2 {
			u.Write(uint16(ops[i]), ops[i+1])
			u.Read(uint16(ops[i+1]))
		}
		u.RestoreState(u.SaveState())
	})
}
