package build

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/build/archive"
)

// aboutDest prints a user's IDs, the ID of a group if one is named, and whether a path is a folder.
const aboutDest = `set -e
if [ -n "$2" ]; then
	id -u "$2"
	case $3 in
	*[!0-9]*)
		g=$(getent group "$3" | cut -d: -f3)
		[ -n "$g" ] || { echo "there is no group '$3'" >&2; exit 1; } ;;
	"")
		g=$(getent group "$2" | cut -d: -f3)
		[ -n "$g" ] || g=$(id -g "$2") ;;
	*) g=$3 ;;
	esac
	echo "$g"
else
	echo -; echo -
fi
if [ -d "$1" ]; then echo folder; else echo; fi`

// unpack is the guest's command to unpack the output of Rewrite. Existing folders and links to
// folders stay.
var unpack = []string{"tar", "--extract", "--file=-", "--directory=/", "--numeric-owner", "--same-owner",
	"--same-permissions", "--keep-directory-symlink", "--no-overwrite-dir"}

// copyStep unpacks uploaded files in a guest.
func (j *job) copyStep(ctx context.Context, g *guest, s Step, c Context) error {
	l, err := destination(ctx, g, s, c)
	if err != nil {
		return err
	}
	f, err := j.b.cfg.Store.openUpload(j.owner, s.FilesHash)
	if err != nil {
		return err
	}
	defer f.Close()
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		_, err := archive.Rewrite(ctx, f, w, l, j.b.cfg.Archive)
		w.CloseWithError(err)
		written <- err
	}()
	_, err = g.run(ctx, command{args: unpack, as: Context{User: "root", Workdir: "/"}, input: r})
	r.Close()
	if bad := <-written; bad != nil && !errors.Is(bad, io.ErrClosedPipe) {
		return bad // tar only saw the end of its input
	}
	return err
}

// destination returns the destination of a COPY and the owner of its files.
func destination(ctx context.Context, g *guest, s Step, c Context) (archive.Layout, error) {
	user, err := who(ctx, g, c)
	if err != nil {
		return archive.Layout{}, err
	}
	dest := s.Args[1]
	switch {
	case path.IsAbs(dest):
	case c.Workdir != "":
		dest = c.Workdir + "/" + dest
	default:
		dest = user.dir + "/" + dest
	}
	l := archive.Layout{Source: s.Args[0], Dest: path.Clean(dest), UID: user.uid, GID: user.gid, Mode: s.mode(),
		Time: time.Unix(0, 0)}
	name, group, _ := strings.Cut(s.arg(2), ":")
	out, err := g.run(ctx, script(aboutDest, l.Dest, name, group))
	if err != nil {
		return archive.Layout{}, err
	}
	if name != "" {
		owner, err := parseIDs(out)
		if err != nil {
			return archive.Layout{}, err
		}
		l.UID, l.GID = owner.uid, owner.gid
	}
	l.Dir = strings.HasSuffix(s.Args[1], "/") || path.Base(s.Args[1]) == "." || strings.HasSuffix(out, "folder\n")
	return l, nil
}
