package durable

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is a whole file to put into a directory.
type File struct {
	Name    string
	Content []byte
}

// manyAtOnce is the number of files from which one sync of the file system is cheaper than a sync of each file.
const manyAtOnce = 8

// PutFiles puts files into a directory, with access for this user only, and makes them and their names durable.
// It replaces existing files. A file never appears in part: it is first written under its name with the prefix.
// Files that begin with the prefix belong to interrupted calls, and may be removed while no call is in progress.
//
// It returns the number of files put, counted from the first one. After an error the remaining files can be put
// again. At most a few of the files cost a sync each, however many there are.
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
