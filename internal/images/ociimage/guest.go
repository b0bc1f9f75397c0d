package ociimage

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/images/erofs"
)

// File is a file for the root, from the host.
type File struct {
	Path string // clean and absolute
	Mode uint16
	Data []byte
}

// AddFile adds a file in place of an object with this path. Missing folders are made. Symbolic links of the image
// lead to other places of it.
func (r *Root) AddFile(f File) error {
	parts := split(f.Path)
	dir, err := r.tree.folder(parts[:len(parts)-1], true)
	if err != nil {
		return fmt.Errorf("add %s: %w", f.Path, err)
	}
	base := parts[len(parts)-1]
	if old, ok := dir.names[base]; ok && old.node.Type() == erofs.TypeDir {
		return fmt.Errorf("add %s: %w", f.Path, invalid("the image has a folder there"))
	}
	data := slices.Clone(f.Data)
	if data == nil {
		data = []byte{}
	}
	n := &node{data: data}
	n.Mode, n.Size = erofs.TypeFile|f.Mode, int64(len(data))
	return r.tree.put(dir, base, n)
}

// AddFolder makes a folder if it is missing.
func (r *Root) AddFolder(path string) error {
	if _, err := r.tree.folder(split(path), true); err != nil {
		return fmt.Errorf("add %s: %w", path, err)
	}
	return nil
}

// Has reports whether the tree has an object with this path. A symbolic link counts as an object.
func (r *Root) Has(path string) bool {
	_, err := r.tree.find(path)
	return err == nil
}

// account is a line of /etc/passwd or /etc/group.
type account struct {
	name     string
	uid, gid int
	home     string
}

// Account returns the name of the account for the configuration's user, and its home. Numbers without an account,
// and users with another group than their own, get a new line in /etc/passwd, because guests know users by name.
func (r *Root) Account() (name, home string, err error) {
	spec := r.image.Config.User
	if spec == "" {
		spec = "0"
	}
	user, group, hasGroup := strings.Cut(spec, ":")
	want, known, err := r.lookUser(user)
	if err != nil {
		return "", "", err
	}
	if hasGroup {
		gid, err := r.lookGroup(group)
		if err != nil {
			return "", "", err
		}
		known = known && gid == want.gid
		want.gid = gid
	}
	if want.uid == 0 && want.gid == 0 && !known {
		return "root", "/root", nil // the agent knows root without /etc/passwd
	}
	if known {
		return want.name, want.home, nil
	}
	want.name = fmt.Sprintf("user%d-%d", want.uid, want.gid)
	return want.name, want.home, r.addAccount(want)
}

func (r *Root) lookUser(user string) (a account, known bool, err error) {
	number, isNumber := parseID(user)
	for _, f := range r.lines("/etc/passwd", 7) {
		uid, ok1 := parseID(f[2])
		gid, ok2 := parseID(f[3])
		if ok1 && ok2 && f[0] != "" && (f[0] == user || isNumber && uid == number) {
			home := f[5]
			if home == "" {
				home = "/"
			}
			return account{f[0], uid, gid, home}, true, nil
		}
	}
	switch {
	case isNumber:
		return account{uid: number, home: "/"}, false, nil
	case user == "root":
		return account{name: "root", home: "/root"}, false, nil
	}
	return account{}, false, invalid("its user %.64q is not in its /etc/passwd", user)
}

func (r *Root) lookGroup(group string) (int, error) {
	if gid, ok := parseID(group); ok {
		return gid, nil
	}
	for _, f := range r.lines("/etc/group", 4) {
		if gid, ok := parseID(f[2]); ok && f[0] == group {
			return gid, nil
		}
	}
	return 0, invalid("its group %.64q is not in its /etc/group", group)
}

func parseID(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil // #nosec G115 -- at most 31 bits
}

// lines returns the fields of a file's lines. Lines with fewer fields are left out.
func (r *Root) lines(path string, fields int) (all [][]string) {
	n, err := r.tree.find(path)
	if err != nil || n.data == nil {
		return nil
	}
	for line := range strings.Lines(string(n.data)) {
		if f := strings.Split(strings.TrimRight(line, "\r\n"), ":"); len(f) >= fields {
			all = append(all, f)
		}
	}
	return all
}

// addAccount appends a line to /etc/passwd.
func (r *Root) addAccount(a account) error {
	line := fmt.Sprintf("%s:x:%d:%d::%s:/sbin/nologin\n", a.name, a.uid, a.gid, a.home)
	n, err := r.tree.find("/etc/passwd")
	if err != nil {
		return r.AddFile(File{Path: "/etc/passwd", Mode: 0o644, Data: []byte(line)})
	}
	if n.data == nil {
		return invalid("its /etc/passwd is not a regular file of at most %d bytes, so its user %s gets no account",
			maxKept, r.image.Config.User)
	}
	if len(n.data) > 0 && !bytes.HasSuffix(n.data, []byte("\n")) {
		line = "\n" + line
	}
	n.data = append(n.data, line...)
	n.Size = int64(len(n.data))
	return nil
}
