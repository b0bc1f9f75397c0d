package mirrors

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// file is a file of an archive.
type file struct {
	name, text string
	mode       int64
}

// tarball returns a compressed tar of files and their parent directories, which tar readers of
// package managers need. It adds prefix to each name.
func tarball(prefix string, made time.Time, files ...file) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	seen := map[string]bool{}
	for _, f := range files {
		err := errors.Join(addDirs(t, prefix, path.Dir(f.name), made, seen), t.WriteHeader(&tar.Header{
			Name: prefix + f.name, Typeflag: tar.TypeReg, Mode: f.mode, Size: int64(len(f.text)), ModTime: made,
			Uname: "root", Gname: "root", Format: tar.FormatGNU,
		}))
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(t, f.text); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func addDirs(t *tar.Writer, prefix, dir string, made time.Time, seen map[string]bool) error {
	if dir == "." || seen[dir] {
		return nil
	}
	seen[dir] = true
	if err := addDirs(t, prefix, path.Dir(dir), made, seen); err != nil {
		return err
	}
	return t.WriteHeader(&tar.Header{Name: prefix + dir + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: made,
		Uname: "root", Gname: "root", Format: tar.FormatGNU})
}

// member is a member of an ar archive.
type member struct {
	name    string
	content []byte
}

// ar returns an ar archive, the format of a .deb: deb(5).
func ar(made time.Time, members ...member) []byte {
	var out strings.Builder
	out.WriteString("!<arch>\n")
	for _, m := range members {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, made.Unix(), 0, 0, "100644", len(m.content))
		out.Write(m.content)
		if len(m.content)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return []byte(out.String())
}
