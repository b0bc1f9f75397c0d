package initramfs

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// File types in an Entry's Mode, as in stat(2).
const (
	TypeDir     = 0o040000
	TypeFile    = 0o100000
	TypeSymlink = 0o120000
	TypeChar    = 0o020000
	TypeBlock   = 0o060000
	typeMask    = 0o170000
)

// Entry is one file of an archive. Its owner and group are root, and its time is 0.
type Entry struct {
	// Path is relative to the root and uses slashes: "lib/modules/x.ko".
	Path string
	// Mode has the type and the permission bits: TypeFile | 0o755.
	Mode uint32
	// Data is the content of a file or the target of a symlink.
	Data []byte
	// Major and Minor are the device number of a node.
	Major, Minor uint32
}

// Dir, File, Symlink and Char return entries of the usual types.
func Dir(path string, perm uint32) Entry { return Entry{Path: path, Mode: TypeDir | perm} }

func File(path string, perm uint32, data []byte) Entry {
	return Entry{Path: path, Mode: TypeFile | perm, Data: data}
}

func Symlink(path, target string) Entry {
	return Entry{Path: path, Mode: TypeSymlink | 0o777, Data: []byte(target)}
}

func Char(path string, perm, major, minor uint32) Entry {
	return Entry{Path: path, Mode: TypeChar | perm, Major: major, Minor: minor}
}

// maxFile is the newc format's limit: sizes have 8 hex digits, and some readers treat them as signed.
const maxFile = 1<<31 - 1

// Write writes entries as an uncompressed newc archive. The order of entries does not matter. Missing parent
// directories are added with mode 0755.
func Write(w io.Writer, entries []Entry) error {
	all, err := complete(entries)
	if err != nil {
		return err
	}
	buf := bufio.NewWriterSize(w, 64<<10)
	for i, e := range all {
		if err := writeEntry(buf, e, i+1); err != nil {
			return fmt.Errorf("write initramfs entry %s: %w", e.Path, err)
		}
	}
	if err := writeEntry(buf, Entry{Path: "TRAILER!!!"}, 0); err != nil {
		return fmt.Errorf("write initramfs trailer: %w", err)
	}
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}

// complete checks the entries, adds missing parents and sorts. A directory's path is a prefix of its files'
// paths, so it comes first.
func complete(entries []Entry) ([]Entry, error) {
	seen := make(map[string]uint32, len(entries))
	for _, e := range entries {
		if err := check(e); err != nil {
			return nil, err
		}
		if _, ok := seen[e.Path]; ok {
			return nil, fmt.Errorf("initramfs entry %s is there twice", e.Path)
		}
		seen[e.Path] = e.Mode
	}
	all := slices.Clone(entries)
	for _, e := range entries {
		for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
			mode, ok := seen[dir]
			if ok && mode&typeMask != TypeDir {
				return nil, fmt.Errorf("initramfs entry %s is below %s, which is no directory", e.Path, dir)
			}
			if !ok {
				seen[dir] = TypeDir | 0o755
				all = append(all, Dir(dir, 0o755))
			}
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

func check(e Entry) error {
	if e.Path == "" || e.Path == "." || e.Path != path.Clean(e.Path) || path.IsAbs(e.Path) ||
		strings.HasPrefix(e.Path, "../") || e.Path == ".." || strings.ContainsRune(e.Path, 0) || e.Path == "TRAILER!!!" {
		return fmt.Errorf("initramfs entry %q: want a clean path relative to the root", e.Path)
	}
	if len(e.Data) > maxFile {
		return fmt.Errorf("initramfs entry %s: %d bytes are more than the format holds", e.Path, len(e.Data))
	}
	switch t := e.Mode & typeMask; t {
	case TypeFile, TypeSymlink:
	case TypeDir, TypeChar, TypeBlock:
		if len(e.Data) > 0 {
			return fmt.Errorf("initramfs entry %s: only files and symlinks have data", e.Path)
		}
	default:
		return fmt.Errorf("initramfs entry %s: mode %#o has no known file type", e.Path, e.Mode)
	}
	return nil
}

// writeEntry writes one record: a header of 13 fields with 8 hex digits, the name and the data, each padded to 4
// bytes.
func writeEntry(w io.Writer, e Entry, inode int) error {
	nlink := 1
	if e.Mode&typeMask == TypeDir {
		nlink = 2
	}
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		inode, e.Mode, 0, 0, nlink, 0, len(e.Data), 0, 0, e.Major, e.Minor, len(e.Path)+1, 0, e.Path)
	for _, part := range [][]byte{[]byte(header), e.Data} {
		if _, err := w.Write(part); err != nil {
			return err
		}
		if _, err := w.Write(make([]byte, -len(part)&3)); err != nil {
			return err
		}
	}
	return nil
}
