package fetcher

import (
	"context"
	"errors"
	"io"
	"log"
	"os"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/partial"
)

// freeBytes returns the space available to an unprivileged user.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Frsize, nil
}

// mount serves the files at the mount point. A mount that a dead process has left is removed first.
func mount(dir string, fs *files) (*fuse.Server, error) {
	for errors.Is(stat(dir), unix.ENOTCONN) {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return nil, &os.PathError{Op: "unmount", Path: dir, Err: err}
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// A name is looked up each time: the same layer can be dropped and pulled again.
	forever, never := time.Hour, time.Duration(0)
	return gofs.Mount(dir, &root{files: fs}, &gofs.Options{
		EntryTimeout: &never, AttrTimeout: &forever,
		MountOptions: fuse.MountOptions{
			AllowOther: os.Geteuid() == 0, // VMMs have users of their own; they get descriptors, and no path
			FsName:     "forkd", Name: "forkd", DirectMount: true, DisableXAttrs: true, MaxWrite: 1 << 20, MaxReadAhead: 1 << 20,
			MaxBackground: 256, Options: []string{"ro"}, Logger: log.New(io.Discard, "", 0),
		},
	})
}

func stat(path string) error {
	var st unix.Stat_t
	return unix.Stat(path, &st)
}

// root is the directory of the mount.
type root struct {
	gofs.Inode
	files *files
}

var _ gofs.NodeLookuper = (*root)(nil)

// Lookup implements fs.NodeLookuper.
func (r *root) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*gofs.Inode, syscall.Errno) {
	f := r.files.get(name)
	if f == nil {
		return nil, syscall.ENOENT
	}
	if child := r.GetChild(name); child != nil {
		if n, ok := child.Operations().(*node); ok && n.file == f {
			n.fill(&out.Attr)
			return child, 0
		}
	}
	n := &node{files: r.files, file: f}
	n.fill(&out.Attr)
	return r.NewInode(ctx, n, gofs.StableAttr{Mode: fuse.S_IFREG}), 0
}

// node is one file.
type node struct {
	gofs.Inode
	files *files
	file  *partial.File
}

var (
	_ gofs.NodeGetattrer = (*node)(nil)
	_ gofs.NodeOpener    = (*node)(nil)
	_ gofs.NodeReader    = (*node)(nil)
	_ gofs.NodeReleaser  = (*node)(nil)
	_ gofs.NodeLseeker   = (*node)(nil)
	_ gofs.NodeStatfser  = (*node)(nil)
)

func (n *node) fill(a *fuse.Attr) {
	a.Mode, a.Size, a.Blksize = fuse.S_IFREG|0o400, uint64(n.file.Size), 4096
	a.Blocks = (a.Size + 511) / 512
	a.Uid, a.Gid = uint32(os.Geteuid()), uint32(os.Getegid())
}

// Getattr implements fs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, _ gofs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.fill(&out.Attr)
	return 0
}

// Open implements fs.NodeOpener.
func (n *node) Open(_ context.Context, flags uint32) (gofs.FileHandle, uint32, syscall.Errno) {
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		return nil, 0, syscall.EROFS
	}
	n.files.handle(1)
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

// Release implements fs.NodeReleaser.
func (n *node) Release(context.Context, gofs.FileHandle) syscall.Errno {
	n.files.handle(-1)
	return 0
}

func (fs *files) handle(by int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.opened += by
	fs.used = time.Now()
}

// Read implements fs.NodeReader. An error is seen by the reader as EIO, and by a VM with the file mapped as SIGBUS.
func (n *node) Read(ctx context.Context, _ gofs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	have, err := n.file.Await(ctx, off, len(dest))
	switch {
	case err == nil:
		return fuse.ReadResultFd(n.file.Data(), off, have), 0
	case ctx.Err() != nil:
		return nil, syscall.EINTR
	}
	n.files.cfg.Log.Error("read", "file", n.file.ID, "offset", off, "err", err)
	return nil, syscall.EIO
}

// Lseek implements fs.NodeLseeker: absent content counts as data.
func (n *node) Lseek(_ context.Context, _ gofs.FileHandle, off uint64, whence uint32) (uint64, syscall.Errno) {
	switch size := uint64(n.file.Size); {
	case off >= size:
		return 0, syscall.ENXIO
	case whence == unix.SEEK_DATA:
		return off, 0
	case whence == unix.SEEK_HOLE:
		return size, 0
	}
	return 0, syscall.EINVAL
}

// Statfs implements fs.NodeStatfser. It fails with EIO after a read of the file has failed: VMMs ask, because a failed
// read does not always reach them.
func (n *node) Statfs(context.Context, *fuse.StatfsOut) syscall.Errno {
	if t := n.file.Trouble(); !t.Since.IsZero() && t.Failed.After(t.Since) {
		return syscall.EIO
	}
	return 0
}
