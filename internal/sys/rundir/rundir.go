package rundir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Marker is the file that marks a run directory of forkd.
const Marker = "forkd-run"

// version is the layout that this forkd creates and reads. A layout that an older daemon must not clean up gets
// the next number.
const version = 1

// ErrRefused is wrapped by all errors that mean that a directory must not be used.
var ErrRefused = errors.New("refused")

// Open opens a run directory, and creates it if it is missing. An existing one must belong to this user, must not
// be writable by others, and must be empty or a run directory already.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	d, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("run directory %s: %w", path, err)
	}
	return d, nil
}

func open(path string) (_ *Dir, err error) {
	if err := trusted(path); err != nil {
		return nil, err
	}
	d, err := openAt(unix.AT_FDCWD, path, path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	// Only after the check that no other user can write to it. Other users must not read sandbox names or logs.
	if err := d.f.Chmod(0o700); err != nil {
		return nil, err
	}
	return d, d.mark()
}

// mark checks for the marker, and creates it where no other files can be lost.
func (d *Dir) mark() error {
	found, err := d.readMarker()
	if !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return err
		}
		if found > version {
			return fmt.Errorf("%w: a newer forkd made it (layout %d, this forkd knows %d); stop that daemon and use its "+
				"forkd, or name another directory", ErrRefused, found, version)
		}
		return nil
	}
	names, err := d.Names()
	if err != nil {
		return err
	}
	if len(names) > 0 && !d.unmarked(names) {
		return fmt.Errorf("%w: it holds %s and was not made by forkd, which removes files from its run directory; name "+
			"one that is empty or not there yet",
			ErrRefused, list(names))
	}
	return d.writeMarker()
}

// list returns the first few of many names.
func list(names []string) string {
	const most = 3
	out := strings.Join(names[:min(most, len(names))], ", ")
	if over := len(names) - most; over > 0 {
		out += fmt.Sprintf(" and %d more", over)
	}
	return strconv.Quote(out)
}

func (d *Dir) writeMarker() error {
	f, err := d.create(Marker)
	if errors.Is(err, fs.ErrExist) { // another daemon was faster; the lock decides which one may stay
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark it: %w", err)
	}
	_, err = fmt.Fprintf(f, "forkd run directory\nlayout %d\n", version)
	return errors.Join(err, f.Close())
}

var markerText = regexp.MustCompile(`^forkd run directory\nlayout ([0-9]{1,9})\n$`)

func (d *Dir) readMarker() (layout int, err error) {
	fd, err := unix.Openat(d.fd(), Marker, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return 0, fmt.Errorf("%w: its %s is a link", ErrRefused, Marker)
	}
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: Marker, Err: err}
	}
	f := os.NewFile(uintptr(fd), Marker)
	defer f.Close()
	if err := owned(fd, unix.S_IFREG); err != nil {
		return 0, fmt.Errorf("%s: %w", Marker, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return 0, err
	}
	if len(b) == 0 { // its daemon died before it wrote the content
		return version, nil
	}
	m := markerText.FindSubmatch(b)
	if m == nil {
		return 0, fmt.Errorf("%w: its %s is not forkd's; name another directory", ErrRefused, Marker)
	}
	return strconv.Atoi(string(m[1]))
}

// The names left by daemons that predate the marker, and by no other program: a lock beside directories.
var (
	unmarkedFile   = regexp.MustCompile(`^(lock|forkd\.sock|kernel-[0-9]+)$`)
	unmarkedFolder = map[string]*regexp.Regexp{
		"vm":     regexp.MustCompile(`^v[0-9]{8,10}$`),
		"family": regexp.MustCompile(`^sb-([a-z2-7]{16}|[0-9a-f]{8}-[0-9]{4,})$`),
	}
)

// unmarked reports whether the names were left by such a daemon.
func (d *Dir) unmarked(names []string) bool {
	if !slices.Contains(names, "lock") {
		return false
	}
	for _, name := range names {
		inner := unmarkedFolder[name]
		if inner == nil {
			if !unmarkedFile.MatchString(name) || !d.plain(name) {
				return false
			}
			continue
		}
		sub, err := openAt(d.fd(), name, filepath.Join(d.path, name))
		if err != nil {
			return false
		}
		below, err := sub.Names()
		sub.Close()
		if err != nil || slices.ContainsFunc(below, func(n string) bool { return !inner.MatchString(n) }) {
			return false
		}
	}
	return true
}
