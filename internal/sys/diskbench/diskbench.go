// Package diskbench measures a file system: sequential and random writes and reads of one file. The same code
// runs in a guest (forkd-agent --disk-bench) and on the daemon's host, to compare the two; it imports no code of
// either. It owns the order of the measurements and the file, which it removes. Beware: reads bypass this
// kernel's cache, but a kernel below may still have the data cached.
package diskbench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Config is the amount of data to write and read.
type Config struct {
	Dir       string
	MiB       int // size of the file
	RandomOps int // number of random writes, and of random reads, of a block
}

// Limits of a Config.
const (
	MaxMiB       = 4096
	MaxRandomOps = 1_000_000
)

// Figures holds the measured rates. Each write includes the final fsync.
type Figures struct {
	SequentialWriteMiBPerS float64 `json:"sequential_write_mib_per_s"`
	SequentialReadMiBPerS  float64 `json:"sequential_read_mib_per_s"`
	RandomWritesPerS       float64 `json:"random_writes_per_s"`
	RandomReadsPerS        float64 `json:"random_reads_per_s"`
}

const (
	chunk = 1 << 20 // size of a sequential access
	block = 4096    // size of a random access
)

// Run measures with a temporary file, which it removes.
func Run(c Config) (f Figures, err error) {
	if c.MiB < 1 || c.MiB > MaxMiB || c.RandomOps < 1 || c.RandomOps > MaxRandomOps {
		return f, fmt.Errorf("a file of %d MiB and %d random accesses, want 1 to %d and 1 to %d",
			c.MiB, c.RandomOps, MaxMiB, MaxRandomOps)
	}
	file, err := os.CreateTemp(c.Dir, "forkd-disk-bench-*")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	// Incompressible data, the same everywhere.
	r := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- every run writes the same
	data := make([]byte, chunk)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	m := measuring{file: file, data: data, random: r, Config: c}
	for _, part := range []struct {
		rate *float64
		n    int
		do   func() error
	}{
		{&f.SequentialWriteMiBPerS, c.MiB, m.write}, {&f.SequentialReadMiBPerS, c.MiB, m.read},
		{&f.RandomWritesPerS, c.RandomOps, m.writeRandom}, {&f.RandomReadsPerS, c.RandomOps, m.readRandom},
	} {
		start := time.Now()
		if err := part.do(); err != nil {
			return f, err
		}
		*part.rate = float64(part.n) / time.Since(start).Seconds()
		if err := m.forget(); err != nil {
			return f, err
		}
	}
	return f, nil
}

type measuring struct {
	Config
	file   *os.File
	data   []byte
	random *rand.Rand
}

// forget drops the file from this kernel's page cache.
func (m *measuring) forget() error {
	return unix.Fadvise(int(m.file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

func (m *measuring) write() error {
	for i := range m.MiB {
		if _, err := m.file.WriteAt(m.data, int64(i)*chunk); err != nil {
			return err
		}
	}
	return m.file.Sync()
}

func (m *measuring) read() error {
	into := make([]byte, chunk)
	for i := range m.MiB {
		if _, err := m.file.ReadAt(into, int64(i)*chunk); err != nil {
			return err
		}
	}
	return nil
}

// place returns a random block's offset.
func (m *measuring) place() int64 { return m.random.Int64N(int64(m.MiB)*chunk/block) * block }

func (m *measuring) writeRandom() error {
	for range m.RandomOps {
		from := m.random.IntN(chunk/block) * block
		if _, err := m.file.WriteAt(m.data[from:from+block], m.place()); err != nil {
			return err
		}
	}
	return m.file.Sync()
}

func (m *measuring) readRandom() error {
	into := make([]byte, block)
	for range m.RandomOps {
		if _, err := m.file.ReadAt(into, m.place()); err != nil {
			return err
		}
	}
	return nil
}
