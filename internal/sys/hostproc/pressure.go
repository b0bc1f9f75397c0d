package hostproc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Pressure is the share of the last 10 s, in percent, in which some task waited for a resource: "some avg10" of
// the kernel's pressure stall information.
type Pressure struct{ CPU, Memory, IO float64 }

// ReadPressure reads the host's pressure. It returns zeros if the kernel does not record it.
func ReadPressure() (Pressure, error) { return pressure(procfs.DefaultMountPoint) }

func pressure(root string) (p Pressure, err error) {
	for _, of := range []struct {
		file string
		to   *float64
	}{{"cpu", &p.CPU}, {"memory", &p.Memory}, {"io", &p.IO}} {
		b, err := os.ReadFile(filepath.Join(root, "pressure", of.file))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EOPNOTSUPP): // built without it, or psi=0
			continue
		case err != nil:
			return p, fmt.Errorf("read pressure: %w", err)
		}
		if *of.to, err = someAvg10(b); err != nil {
			return p, fmt.Errorf("read %s pressure: %w", of.file, err)
		}
	}
	return p, nil
}

// someAvg10 parses one file: "some avg10=0.12 avg60=0.00 avg300=0.00 total=1234", then a line "full".
func someAvg10(b []byte) (float64, error) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 2 || fields[0] != "some" {
		return 0, fmt.Errorf("it begins with %.40q, want some avg10=", line)
	}
	value, ok := strings.CutPrefix(fields[1], "avg10=")
	v, err := strconv.ParseFloat(value, 64)
	if !ok || err != nil || !(v >= 0 && v <= 100) { // also rejects NaN
		return 0, fmt.Errorf("it has %.40q, want avg10= and 0 to 100", fields[1])
	}
	return v, nil
}
