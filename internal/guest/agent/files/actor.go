package files

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/asuser"
	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/guestpath"
	"github.com/forkd/forkd/internal/guest/agentproto"
)

// Actor is the identity for file operations.
type Actor struct {
	user account.User
	// root acts as the agent, as root, and gives new files to user.
	root bool
}

// Do runs f with the actor's rights, on a separate thread if necessary.
func (a Actor) Do(f func() error) error {
	if a.root {
		return f()
	}
	return asuser.Do(a.user, f)
}

// isRoot reports whether the actor has all rights.
func (a Actor) isRoot() bool { return os.Getuid() == 0 && (a.root || a.user.UID == 0) }

func actorFor(h http.Header, u account.User) Actor {
	return Actor{user: u, root: h.Get(agentproto.HeaderAsRoot) != ""}
}

// Resolve finds the actor and the absolute path of an RPC.
func Resolve(rec *defaults.Record, h http.Header, path string) (Actor, string, error) {
	u, err := account.Lookup(account.FromHeader(h, rec.User()))
	if err != nil {
		return Actor{}, "", connect.NewError(connect.CodeUnauthenticated, err)
	}
	abs, err := guestpath.Resolve(path, u.Home, rec.Workdir())
	if err != nil {
		return Actor{}, "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return actorFor(h, u), abs, nil
}

// makeDirs opens the directory at path. It creates missing directories.
func (a Actor) makeDirs(path string) (*os.File, error) {
	d, err := Open(path, unix.O_PATH|unix.O_DIRECTORY)
	if !errors.Is(err, unix.ENOENT) || path == "/" {
		return d, err
	}
	parent, err := a.makeDirs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return a.makeDir(parent, filepath.Base(path))
}

func (a Actor) makeDir(parent *os.File, name string) (*os.File, error) {
	made := unix.Mkdirat(int(parent.Fd()), name, 0o755)
	if made != nil && made != unix.EEXIST { // EEXIST: another process was faster
		return nil, made
	}
	d, err := openAt(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil || made != nil {
		return d, err
	}
	if err := a.give(d); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// give makes the user the owner of a file, if the agent has created it as root.
func (a Actor) give(f *os.File) error {
	if !a.root || os.Getuid() != 0 {
		return nil
	}
	return unix.Fchownat(int(f.Fd()), "", a.user.UID, a.user.GID, unix.AT_EMPTY_PATH)
}
