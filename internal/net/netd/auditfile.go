package netd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// Limits of the audit's files.
const (
	auditFileMax = 16 << 20 // bytes of the operator's file before it becomes FILE.1
	ownerShare   = 4        // a tenant's file has this fraction of the size
	vmShare      = 4        // a VM's lines fill at most this fraction of a file
	fileAge      = 24 * time.Hour
	maxOwners    = 256 // owners with separate files
)

// ownerName matches the names of tenants as package keys makes them.
var ownerName = regexp.MustCompile(`^[a-z0-9_]{1,24}$`)

// logFiles are the audit's files: the operator's, and one per tenant, so a tenant removes only its
// own lines. Only one goroutine may use them.
type logFiles struct {
	path   string
	most   int64
	owners map[string]*logFile
}

// logFile is one owner's file.
type logFile struct {
	path  string
	most  int64
	f     *os.File
	size  int64
	began time.Time
	used  map[string]int64         // bytes of each VM
	over  map[string]*control.Line // counts for VMs that have used their share, for the next file
}

// openLogFiles opens the operator's file. Tenants' files are opened on first use.
func openLogFiles(path string, most int64) (*logFiles, error) {
	fs := &logFiles{path: path, most: most, owners: map[string]*logFile{}}
	_, err := fs.of("")
	return fs, err
}

// of returns the file of an owner.
func (fs *logFiles) of(owner string) (*logFile, error) {
	path, most := fs.path, fs.most
	if owner != "" {
		if !ownerName.MatchString(owner) || fs.owners[owner] == nil && len(fs.owners) > maxOwners {
			owner = "OTHERS"
		}
		path, most = path+".tenant-"+owner, most/ownerShare
	}
	if l := fs.owners[owner]; l != nil {
		return l, nil
	}
	l := &logFile{path: path, most: most}
	if err := l.open(); err != nil {
		return nil, err
	}
	fs.owners[owner] = l
	return l, nil
}

func (fs *logFiles) write(l control.Line) error {
	f, err := fs.of(l.Owner)
	if err != nil {
		return err
	}
	return f.write(l)
}

func (fs *logFiles) close() {
	if fs == nil {
		return
	}
	for _, l := range fs.owners {
		l.f.Close()
	}
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open audit: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("open audit: %w", err)
	}
	if l.f != nil {
		l.f.Close()
	}
	l.f, l.size, l.began, l.used = f, st.Size(), time.Now(), map[string]int64{}
	return nil
}

// write appends a line, unless its VM has used its share of the file. A full file becomes FILE.1.
// If a VM has used its share, the file becomes FILE.1 after a day.
func (l *logFile) write(line control.Line) error {
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	n := int64(len(b) + 1)
	isOver := l.used[line.VM]+n > l.most/vmShare
	if l.size > l.most || isOver && time.Since(l.began) > fileAge {
		if err := l.next(); err != nil {
			return err
		}
		isOver = false
	}
	if isOver {
		l.suppress(line)
		return nil
	}
	l.used[line.VM] += n
	return l.append(b)
}

func (l *logFile) append(b []byte) error {
	n, err := l.f.Write(append(b, '\n'))
	l.size += int64(n)
	return err
}

// next starts a new file. It first writes the counts of suppressed lines.
func (l *logFile) next() error {
	if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := l.open(); err != nil {
		return err
	}
	over := l.over
	l.over = nil
	for _, line := range over {
		b, err := json.Marshal(line)
		if err == nil {
			err = l.append(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// suppress counts a line of a VM that has used its share.
func (l *logFile) suppress(line control.Line) {
	if l.over == nil {
		l.over = map[string]*control.Line{}
	}
	o := l.over[line.VM]
	if o == nil {
		o = &control.Line{Time: line.Time, VM: line.VM, Sandbox: line.Sandbox, Owner: line.Owner, Verdict: control.Suppressed,
			Name: control.Others, Reason: "the sandbox had used its share of the file before"}
		l.over[line.VM] = o
	}
	o.Count += max(line.Count, 1)
}
