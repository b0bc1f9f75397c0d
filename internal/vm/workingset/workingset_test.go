package workingset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
)

var update = flag.Bool("update", false, "rewrite golden files")

const testMemory = 1 << 20

var testRuns = []Run{{extent.Run{Offset: 0, Length: 4096}, true}, {extent.Run{Offset: 4096, Length: 8192}, false}, {extent.Run{Offset: 65536, Length: 4096}, false}, {extent.Run{Offset: testMemory - 4096, Length: 4096}, true}}

func encode(t testing.TB, runs ...Run) []byte {
	t.Helper()
	var w Writer
	for _, r := range runs {
		if err := w.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return w.Bytes(testMemory)
}

func TestGolden(t *testing.T) {
	golden := filepath.Join("testdata", "working-set-v2")
	got := encode(t, testRuns...)
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("format version %d has changed:\n%x", Format, got)
	}
	s, err := Read(bytes.NewReader(want), testMemory)
	if err != nil {
		t.Fatal(err)
	}
	if runs := slices.Collect(s.Runs()); !slices.Equal(runs, testRuns) {
		t.Errorf("read %+v, want %+v", runs, testRuns)
	}
}

func TestNeighboursOfOneKindBecomeOneRun(t *testing.T) {
	s, err := Read(bytes.NewReader(encode(t, Run{extent.Run{Offset: 4096, Length: 4096}, true}, Run{extent.Run{Offset: 8192, Length: 4096}, true}, Run{extent.Run{Offset: 12288, Length: 4096}, false})), testMemory)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Collect(s.Runs()), []Run{{extent.Run{Offset: 4096, Length: 8192}, true}, {extent.Run{Offset: 12288, Length: 4096}, false}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWhatIsNoRunIsNotAdded(t *testing.T) {
	for name, r := range map[string]Run{
		"empty": {extent.Run{Offset: 8192, Length: 0}, false}, "negative": {extent.Run{Offset: -4096, Length: 4096}, false}, "part of a page": {extent.Run{Offset: 8192, Length: 100}, false},
		"behind the one before": {extent.Run{Offset: 0, Length: 4096}, false}, "beyond 8 TiB": {extent.Run{Offset: 1 << 43, Length: 4096}, false},
	} {
		var w Writer
		if err := w.Add(Run{extent.Run{Offset: 4096, Length: 4096}, false}); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(r); err == nil {
			t.Errorf("%s: %+v was added", name, r)
		}
	}
	var w Writer
	var err error
	for i := int64(0); err == nil && i <= MaxRuns; i++ {
		err = w.Add(Run{extent.Run{Offset: 2 * i * 4096, Length: 4096}, false})
	}
	if err == nil || len(w.Bytes(testMemory)) != MaxSize {
		t.Errorf("more runs than %d: %v", MaxRuns, err)
	}
}

// raw returns a file with a correct checksum and any content.
func raw(runs uint32, pages uint64, words ...uint32) []byte {
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint32(b, Format)
	b = binary.LittleEndian.AppendUint32(b, runs)
	b = binary.LittleEndian.AppendUint64(b, pages)
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func TestWhatIsNoWorkingSetIsRefused(t *testing.T) {
	const pages = testMemory / 4096
	good := encode(t, testRuns...)
	damage := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":                 {nil, ErrDamaged},
		"cut short":             {good[:len(good)-1], ErrDamaged},
		"another magic":         {damage(0), ErrFormat},
		"another format":        {damage(8), ErrFormat},
		"a flipped bit":         {damage(headerSize + 1), ErrDamaged},
		"another checksum":      {damage(len(good) - 1), ErrDamaged},
		"too many runs":         {raw(MaxRuns+1, pages), ErrDamaged},
		"of other memory":       {raw(0, pages+1), ErrDamaged},
		"behind the memory":     {raw(1, pages, pages, 1), ErrDamaged},
		"across its end":        {raw(1, pages, pages-1, 2), ErrDamaged},
		"far behind the memory": {raw(1, pages, 1<<32-1, 1<<32-1), ErrDamaged},
		"an empty run":          {raw(1, pages, 1, writtenBit), ErrDamaged},
		"runs that overlap":     {raw(2, pages, 1, 2, 2, 1), ErrDamaged},
		"falling runs":          {raw(2, pages, 9, 1, 1, 1), ErrDamaged},
	} {
		if _, err := Read(bytes.NewReader(c.file), testMemory); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if _, err := Read(bytes.NewReader(raw(2, pages, 0, 1, pages-1, 1|writtenBit)), testMemory); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encode(f, testRuns...))
	f.Add(raw(1, 256, 1<<32-1, 1<<32-1))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4 { // otherwise no mutation passes the checksum
			binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.ChecksumIEEE(b[:len(b)-4]))
		}
		s, err := Read(bytes.NewReader(b), testMemory)
		if err != nil {
			return
		}
		var next int64
		for r := range s.Runs() {
			if r.Offset < next || r.Length <= 0 || r.Offset+r.Length > testMemory || (r.Offset|r.Length)%4096 != 0 {
				t.Fatalf("run %+v behind %d", r, next)
			}
			next = r.Offset + r.Length
		}
	})
}
