package durable

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is a whole file that is to be put into a folder.
type File struct {
	Name    string
	Content []byte
}

// manyAtOnce is from how many files on one sync of the file system is cheaper than one of each.
const manyAtOnce = 8

// PutFiles puts files into a folder, for this user alone, and makes them and their
// names durable; a file of the same name is replaced. At no moment is one there in
// part: it is written under its name with the prefix first. What begins with the
// prefix is of a call that did not end, and may be removed when none is under way.
//
// The number is how many were put, the first ones; after an error the others can be
// put again. However many there are, no more than a few of them cost a sync each.
func PutFiles(dir, prefix string, files []File) (put int, err error) {
	if len(files) == 0 {
		return 0, nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	temporary := func(f File) string { return filepath.Join(dir, prefix+f.Name) }
	defer func() {
		for _, f := range files[put:] {
			os.Remove(temporary(f))
		}
	}()
	together := len(files) >= manyAtOnce
	written := 0
	for ; written < len(files); written++ {
		f := files[written]
		if err = writeFile(temporary(f), f.Content, !together); err != nil {
			break
		}
	}
	if together {
		if e := unix.Syncfs(int(d.Fd())); e != nil {
			return 0, errors.Join(err, os.NewSyscallError("syncfs", e))
		}
	}
	for ; put < written; put++ {
		f := files[put]
		if e := os.Rename(temporary(f), filepath.Join(dir, f.Name)); e != nil {
			err = errors.Join(err, e)
			break
		}
	}
	return put, errors.Join(err, d.Sync())
}
