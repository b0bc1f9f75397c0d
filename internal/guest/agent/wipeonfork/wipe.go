package wipeonfork

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// limit is the time within which all processes of a guest have to be done.
const limit = 20 * time.Second

const (
	bufferBytes = 16 << 10 // of smaps; the kernel answers with a page at a time
	chunkPages  = 64       // pages of one look into a page table
)

// Bits of an entry of /proc/PID/pagemap: Linux' Documentation/admin-guide/mm/pagemap.rst.
const present, swapped = 1 << 63, 1 << 62

// Wiper clears marked pages. The zero value is ready to use. One call at a time.
type Wiper struct {
	Proc string // normally /proc, if empty

	known map[int]known // by process ID, from Look
}

// known is the state of a process when Look saw it.
type known struct {
	activity activity
	maps     uint64 // of its regions, marked or not
	marked   []region
}

// Wiped is a result.
type Wiped struct {
	Processes int // with marked pages
	Pages     int // that became zero
}

// Look remembers the marked pages of all processes. Call it last before a snapshot.
func (w *Wiper) Look(ctx context.Context) error {
	w.known = map[int]known{}
	_, err := w.each(ctx, func(_ context.Context, s *scan, p *process) (_ int, err error) {
		var k known
		if k.activity, err = p.activity(); err != nil { // before the marks are read: what follows is a change
			return 0, err
		}
		if k.maps, err = s.maps(p); err != nil {
			return 0, err
		}
		if k.marked, err = s.marked(p); err == nil {
			w.known[p.pid] = k
		}
		return 0, err
	})
	return err
}

// Wipe clears the marked pages of all processes but the caller's. A process that ends meanwhile is no error. An error
// lists processes with pages that could not be cleared; those of the others are clear.
func (w *Wiper) Wipe(ctx context.Context) (Wiped, error) {
	return w.each(ctx, func(ctx context.Context, s *scan, p *process) (int, error) {
		regions, err := w.regions(s, p)
		if err != nil || len(regions) == 0 {
			return 0, err
		}
		return s.clear(ctx, p, regions)
	})
}

// regions returns the marked regions of a process: those that Look saw, if it has not worked since, or at least has the
// same regions.
func (w *Wiper) regions(s *scan, p *process) ([]region, error) {
	if was, seen := w.known[p.pid]; seen {
		now, err := p.activity()
		if err != nil {
			return nil, err
		}
		if now == was.activity {
			return was.marked, nil
		}
		if now.began == was.activity.began {
			if sum, err := s.maps(p); err != nil || sum == was.maps {
				return was.marked, err
			}
		}
	}
	return s.marked(p)
}

// scan has the buffers of a call.
type scan struct {
	lines *bufio.Reader
	zeros []byte // a page
}

// seed is the same in all clones of this process.
var seed = maphash.MakeSeed()

// each calls do for each process, and adds up the pages.
func (w *Wiper) each(ctx context.Context, do func(context.Context, *scan, *process) (int, error)) (Wiped, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	proc := cmp.Or(w.Proc, "/proc")
	pids, err := processes(proc)
	if err != nil {
		return Wiped{}, err
	}
	s := scan{lines: bufio.NewReaderSize(nil, bufferBytes), zeros: make([]byte, os.Getpagesize())}
	var all Wiped
	var errs []error
	for _, pid := range pids {
		n, err := one(ctx, proc, pid, &s, do)
		if n > 0 {
			all.Processes++
			all.Pages += n
		}
		if err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("process %d: %w", pid, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return all, errors.Join(errs...)
}

func one(ctx context.Context, proc string, pid int, s *scan,
	do func(context.Context, *scan, *process) (int, error)) (int, error) {
	root, err := os.OpenRoot(filepath.Join(proc, strconv.Itoa(pid)))
	if err != nil {
		return 0, err
	}
	defer root.Close()
	return do(ctx, s, &process{pid, root})
}

// processes returns the IDs of all processes but the caller's and the kernel's.
func processes(proc string) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	skip := map[string]bool{strconv.Itoa(os.Getpid()): true}
	// Process 2 is the parent of the kernel's processes, which have no memory of their own. In a PID namespace another
	// program has this ID. The result then has processes without memory, which costs time only.
	if comm, err := os.ReadFile(filepath.Join(proc, "2/comm")); err == nil && string(comm) == "kthreadd\n" {
		kernel, _ := os.ReadFile(filepath.Join(proc, "2/task/2/children"))
		for _, pid := range strings.Fields(string(kernel)) {
			skip[pid] = true
		}
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 0 && !skip[e.Name()] {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// gone reports whether the error is that of a process that has ended.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// marked reads the marked regions of a process, with a walk through its page tables.
func (s *scan) marked(p *process) (found []region, err error) {
	err = p.read("smaps", func(f io.Reader) error {
		s.lines.Reset(f)
		found, err = marked(s.lines)
		return err
	})
	return found, err
}

// maps returns a hash of the regions of a process.
func (s *scan) maps(p *process) (uint64, error) {
	var sum maphash.Hash
	sum.SetSeed(seed)
	err := p.read("maps", func(f io.Reader) error {
		s.lines.Reset(f)
		_, err := s.lines.WriteTo(&sum)
		return err
	})
	return sum.Sum64(), err
}

// clear writes zeros to the pages of the regions, and returns their number.
func (s *scan) clear(ctx context.Context, p *process, regions []region) (n int, err error) {
	mem, err := p.files.OpenFile("mem", os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, mem.Close()) }()
	table, err := p.files.Open("pagemap")
	if err != nil {
		return 0, err
	}
	defer table.Close()
	for _, r := range regions {
		wiped, err := s.region(ctx, mem, table, r)
		n += wiped
		if err != nil {
			return n, fmt.Errorf("addresses %x-%x: %w", r.from, r.to, err)
		}
	}
	return n, nil
}

// region writes zeros to the pages of a region that exist. The others are zero when they are first read.
func (s *scan) region(ctx context.Context, mem, table *os.File, r region) (n int, err error) {
	size := uint64(len(s.zeros))
	var entries [chunkPages * 8]byte
	for at := r.from; at < r.to; at += chunkPages * size {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		count := min(chunkPages, (r.to-at)/size)
		got, err := table.ReadAt(entries[:count*8], int64(at/size*8)) // #nosec G115 -- of 56 bits
		if uint64(got) < count*8 {                                    // #nosec G115 -- not negative
			return n, fmt.Errorf("read the page table: %w", err)
		}
		for i := range count {
			if binary.NativeEndian.Uint64(entries[i*8:])&(present|swapped) == 0 {
				continue
			}
			if _, err := mem.WriteAt(s.zeros, int64(at+i*size)); err != nil { // #nosec G115 -- as above
				return n, fmt.Errorf("clear a page: %w", err)
			}
			n++
		}
	}
	return n, nil
}
