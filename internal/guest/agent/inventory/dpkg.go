package inventory

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// statusFile is dpkg's list of packages, below the root.
const statusFile = "/var/lib/dpkg/status"

// Limits of the list of packages.
const (
	maxPackages   = 20_000
	maxStatusFile = 64 << 20
	maxLine       = 64 << 10 // of the status file; longer lines are skipped
	maxWord       = 256
)

// packages reads the installed packages. A missing file means no packages.
func packages(name string) (all []*agentv1.InventoryPackage, cut uint64, err error) {
	f, err := os.Open(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	defer f.Close()
	return parseStatusFile(io.LimitReader(f, maxStatusFile))
}

// paragraph is a partly read package.
type paragraph struct {
	name, version, architecture string
	installed                   bool
}

// parseStatusFile reads paragraphs of "Field: value" lines, separated by empty lines (deb822(5)). A
// line that starts with a space continues the line before.
func parseStatusFile(r io.Reader) (all []*agentv1.InventoryPackage, cut uint64, err error) {
	var p paragraph
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := shortLine(lines)
		if err == nil && len(bytes.TrimSpace(line)) > 0 {
			p.take(line)
			continue
		}
		switch {
		case p.name == "" || !p.installed:
		case len(all) == maxPackages:
			cut++
		default:
			all = append(all, &agentv1.InventoryPackage{Name: p.name, Version: p.version, Architecture: p.architecture})
		}
		p = paragraph{}
		if errors.Is(err, io.EOF) {
			return all, cut, nil
		}
		if err != nil {
			return all, cut, err
		}
	}
}

// shortLine returns the next line. It returns "-" for a line that is too long, because such a line
// is no needed field.
func shortLine(r *bufio.Reader) ([]byte, error) {
	line, more, err := r.ReadLine()
	if !more || err != nil {
		return line, err
	}
	for more && err == nil {
		_, more, err = r.ReadLine()
	}
	return []byte("-"), err
}

func (p *paragraph) take(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	switch string(name) {
	case "Package":
		p.name = word(value)
	case "Version":
		p.version = word(value)
	case "Architecture":
		p.architecture = word(value)
	case "Status": // for example "install ok installed"
		p.installed = bytes.HasSuffix(value, []byte(" installed"))
	}
}

func word(b []byte) string {
	return string(bytes.ToValidUTF8(b[:min(len(b), maxWord)], []byte("?")))
}
