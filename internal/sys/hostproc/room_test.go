package hostproc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPressure(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want float64
		says string // part of the error
	}{
		"as it is":      {"some avg10=12.34 avg60=1.00 avg300=0.10 total=5\nfull avg10=99.00 avg60=0 avg300=0 total=0\n", 12.34, ""},
		"without full":  {"some avg10=0.00 avg60=0.00 avg300=0.00 total=0", 0, ""},
		"all of it":     {"some avg10=100.00 avg60=1 avg300=1 total=1\n", 100, ""},
		"empty":         {"", 0, "want some"},
		"full first":    {"full avg10=1 avg60=1\n", 0, "want some"},
		"another field": {"some avg60=1\n", 0, "want avg10="},
		"no number":     {"some avg10=NaN\n", 0, "0 to 100"},
		"too much":      {"some avg10=101\n", 0, "0 to 100"},
		"less than 0":   {"some avg10=-1\n", 0, "0 to 100"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := someAvg10([]byte(c.text))
			if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %g, %v, want %g, %q", got, err, c.want, c.says)
			}
		})
	}
}

func TestPressureOfAHost(t *testing.T) {
	root := t.TempDir()
	if p, err := pressure(root); err != nil || p != (Pressure{}) {
		t.Errorf("of a kernel without: %+v, %v", p, err)
	}
	for i, file := range []string{"cpu", "memory", "io"} {
		plant(t, root, "pressure/"+file, "some avg10="+string(rune('1'+i))+".50 avg60=0.00 avg300=0.00 total=0\n")
	}
	if p, err := pressure(root); err != nil || p != (Pressure{CPU: 1.5, Memory: 2.5, IO: 3.5}) {
		t.Errorf("got %+v, %v", p, err)
	}
	plant(t, root, "pressure/io", "none\n")
	if _, err := pressure(root); err == nil || !strings.Contains(err.Error(), "io pressure") {
		t.Errorf("of a file that is none: %v", err)
	}
}

func FuzzSomeAvg10(f *testing.F) {
	f.Add([]byte("some avg10=12.34 avg60=1.00 avg300=0.10 total=5\nfull avg10=0.00"))
	f.Add([]byte("some avg10=1e2"))
	f.Add([]byte("some avg10=\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := someAvg10(b)
		if err != nil && v != 0 || !(v >= 0 && v <= 100) {
			t.Errorf("got %g, %v", v, err)
		}
	})
}

func TestThreads(t *testing.T) {
	root := t.TempDir()
	plant(t, root, "loadavg", "0.20 0.18 0.12 3/812 11206\n")
	plant(t, root, "sys/kernel/pid_max", "32768\n")
	plant(t, root, "sys/kernel/threads-max", "4000\n")
	if n, err := threads(root); err != nil || n != 812 {
		t.Errorf("got %d, %v", n, err)
	}
	if n, err := maxThreads(root); err != nil || n != 4000 {
		t.Errorf("at most %d, %v", n, err)
	}
	for name, text := range map[string]string{"short": "0.20 0.18", "no slash": "1 1 1 812 1", "empty": ""} {
		plant(t, root, "loadavg", text)
		if _, err := threads(root); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	plant(t, root, "sys/kernel/pid_max", "many\n")
	if _, err := maxThreads(root); err == nil || !strings.Contains(err.Error(), "pid_max") {
		t.Errorf("a limit that is none: %v", err)
	}
}

// The parsers can read this kernel's files, and give plausible values.
func TestThisHost(t *testing.T) {
	if available, total, err := Memory(); err != nil || available < 1<<20 || total < available {
		t.Errorf("memory: %d of %d, %v", available, total, err)
	}
	if _, err := ReadPressure(); err != nil {
		t.Error(err)
	}
	n, err := Threads()
	most, errMost := MaxThreads()
	if err != nil || errMost != nil || n < 1 || most < n {
		t.Errorf("threads: %d of %d, %v, %v", n, most, err, errMost)
	}
	if free, total, err := Disk(t.TempDir()); err != nil || free < 1 || total < free {
		t.Errorf("disk: %d of %d, %v", free, total, err)
	}
	if _, _, err := Disk(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a directory that is not there has room")
	}
}

func TestOpenFilesAreCounted(t *testing.T) {
	before, limit, err := Files()
	if err != nil || before < 3 || limit < before {
		t.Fatalf("%d of %d, %v", before, limit, err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if now, _, err := Files(); err != nil || now <= before-2 { // the runtime may have closed some of its own
		t.Errorf("with one more there are %d, before there were %d, %v", now, before, err)
	}
	dir := t.TempDir() // its size is not a number of descriptors, so they are listed, as on an older kernel
	plant(t, dir, "0", "")
	if n, err := openFiles(dir); err != nil || n == 0 {
		t.Errorf("got %d, %v", n, err)
	}
}
