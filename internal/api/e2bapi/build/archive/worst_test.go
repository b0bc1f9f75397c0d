package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemonLimits are the limits of package e2bapi.
var daemonLimits = Limits{Bytes: 8 << 30, Entries: 250_000}

// gzipped packs the output of fill.
func gzipped(tb testing.TB, level int, fill func(w io.Writer)) []byte {
	tb.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		tb.Fatal(err)
	}
	fill(z)
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// names fills an archive with n empty files. If before is not empty, each file has it as a
// preceding header.
func names(n int, before []byte, name func(i int) string) func(io.Writer) {
	return func(w io.Writer) {
		for i := range n {
			_, _ = w.Write(before)
			tw := tar.NewWriter(w)
			_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name(i)})
			_ = tw.Flush()
		}
		_, _ = w.Write(make([]byte, 1024))
	}
}

// phrases fills an archive with a file of mib MiB, which gzip packs to about a tenth.
func phrases(mib int) func(io.Writer) {
	return func(w io.Writer) {
		rnd := rand.New(rand.NewPCG(1, 2))
		words := make([]byte, 8<<10)
		for i := range words {
			words[i] = byte(rnd.Uint32())
		}
		tw := tar.NewWriter(w)
		left := mib << 20
		_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: int64(left)})
		for left > 0 {
			n, at := min(left, 40+rnd.IntN(30)), rnd.IntN(8000)
			_, _ = tw.Write(words[at : at+n])
			left -= n
		}
		_ = tw.Close()
	}
}

func records(n int) []byte { return rawEntry('x', "p", bytes.Repeat([]byte("6 a=b\n"), n)) }

func number(i int) string { return fmt.Sprint("f", i) }

// BenchmarkWorst measures the most expensive archives within the limits of package e2bapi.
func BenchmarkWorst(b *testing.B) {
	for _, row := range []struct {
		name string
		fill func(io.Writer)
	}{
		{"content", phrases(500)},
		{"files", names(249_000, nil, number)},
		{"records", names(249_000, records(linesEach), number)},
		{"deep", names(220_000, nil, func(i int) string { return strings.Repeat("a/", 60) + number(i) })},
		{"folders", names(2700, nil, func(i int) string { return number(i) + strings.Repeat("/a", 90) })},
	} {
		packed := gzipped(b, gzip.BestCompression, row.fill)
		b.Run(row.name+"/scan", func(b *testing.B) {
			costs(b, func() error { return scan(packed, daemonLimits) })
		})
		b.Run(row.name+"/rewrite", func(b *testing.B) {
			l := Layout{Source: ".", Dest: "/x", Mode: -1}
			costs(b, func() error {
				_, err := Rewrite(b.Context(), bytes.NewReader(packed), io.Discard, l, daemonLimits)
				return err
			})
		})
	}
}

// costs reports the processor time and the largest heap of f.
func costs(b *testing.B, f func() error) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	runtime.GC()
	var peak atomic.Int64
	base, stop, stopped := heap(), make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-tick.C:
				peak.Store(max(peak.Load(), heap()-base))
			case <-stop:
				return
			}
		}
	}()
	before := processor()
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processor()-before).Seconds()/float64(b.N), "cpu-s/op")
	close(stop)
	<-stopped
	b.ReportMetric(float64(peak.Load()>>20), "peak-MiB")
}

func processor() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestOrdinaryArchivesPass packs a folder of modules like Python, with a record for each time.
func TestOrdinaryArchivesPass(t *testing.T) {
	body := bytes.Repeat([]byte("module.exports = require('./a')\n"), 32)
	b := gzipped(t, gzip.BestSpeed, func(w io.Writer) {
		tw := tar.NewWriter(w)
		for i := range 20_000 {
			name := fmt.Sprintf("app/node_modules/package-%d/dist/esm/internal/%d.js", i/50, i)
			records := map[string]string{"mtime": "1700000000.123", "LIBARCHIVE.creationtime": "1700000000"}
			h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: 0o644, PAXRecords: records}
			if err := tw.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			_, _ = tw.Write(body)
		}
		_ = tw.Close()
	})
	s, err := Scan(t.Context(), bytes.NewReader(b), daemonLimits)
	if err != nil || s.Entries != 20_000 {
		t.Errorf("%d entries, %v", s.Entries, err)
	}
}

// TestRecordsAreBounded checks PAX records. archive/tar makes a string of each.
func TestRecordsAreBounded(t *testing.T) {
	row := func(n, each int) error {
		return scan(gzipped(t, gzip.BestSpeed, names(n, records(each), number)), daemonLimits)
	}
	if err := row(1000, 100); !errors.Is(err, ErrTooLarge) {
		t.Errorf("100,000 records for 1000 files: %v", err)
	}
	if err := row(1000, 20); err != nil {
		t.Errorf("20 records for each file: %v", err)
	}
}

// TestFoldersWithoutEntriesCount checks folders that appear only in names of files.
func TestFoldersWithoutEntriesCount(t *testing.T) {
	b := gzipped(t, gzip.BestSpeed, names(20, nil, func(i int) string { return number(i) + strings.Repeat("/a", 90) }))
	if err := scan(b, Limits{Bytes: 1 << 20, Entries: 1000}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("20 files below 1800 folders, want at most 1000: %v", err)
	}
}

// TestEmptyBlocksAreRefused checks empty gzip members, which only cost time.
func TestEmptyBlocksAreRefused(t *testing.T) {
	b := bytes.Repeat(zip(nil), 3<<20/len(zip(nil)))
	b = append(b, zip(pack(t, file("a", "a")))...)
	if err := scan(b, roomy); !errors.Is(err, ErrBad) {
		t.Errorf("%d packed bytes with a file of one byte: %v", len(b), err)
	}
}

// TestALinkIsNoFolderOfEarlierEntries checks a link with the name of a folder that appeared only in
// earlier names.
func TestALinkIsNoFolderOfEarlierEntries(t *testing.T) {
	if err := scan(pack(t, file("d/a", "a"), link("d", "/etc")), roomy); !errors.Is(err, ErrBad) {
		t.Errorf("a link in place of the folder of a file: %v", err)
	}
}

// TestMemoryOfEntriesIsBounded checks that a long name does not increase the memory of an entry.
func TestMemoryOfEntriesIsBounded(t *testing.T) {
	const n, most = 20_000, 100
	long := strings.Repeat("n", 200)
	tr := newTree(2 * n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		if err := tr.add(long+number(i), tar.TypeReg); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n; kept > most {
		t.Errorf("an entry keeps %d bytes, want at most %d", kept, most)
	}
	runtime.KeepAlive(tr)
}
