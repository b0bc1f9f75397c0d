package files

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
)

// Entry describes the file at path, under the name shown. It returns only data that the calling
// thread may read.
func Entry(path, shown string) (*filesystem.EntryInfo, error) {
	at, err := Open(path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	st, err := at.Stat()
	if err != nil {
		return nil, err
	}
	e := &filesystem.EntryInfo{
		Name:         valid(filepath.Base(shown)),
		Path:         valid(shown),
		Type:         kind(st.Mode()),
		Size:         st.Size(),
		Mode:         permissions(st.Mode()),
		Permissions:  st.Mode().String(),
		ModifiedTime: timestamppb.New(st.ModTime()),
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = userName(sys.Uid), groupName(sys.Gid)
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		e.LinkText, e.IsSymlink = linkText(at), true
		describeTarget(e, path)
	} else {
		e.Metadata = readMetadata(self(at))
	}
	return e, nil
}

// linkText returns the text of an open link, or nil if it cannot be read.
func linkText(at *os.File) []byte {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(at.Fd()), "", buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// describeTarget sets the kind and mode of a link to those of its final target.
func describeTarget(e *filesystem.EntryInfo, path string) {
	e.Type = filesystem.FileType_FILE_TYPE_UNSPECIFIED
	e.SymlinkTarget = proto.String(e.GetPath())
	at, err := Open(path, unix.O_PATH)
	if err != nil {
		return
	}
	defer at.Close()
	st, err := at.Stat()
	target, err2 := realPath(at)
	if err != nil || err2 != nil {
		return
	}
	e.Type, e.Mode = kind(st.Mode()), permissions(st.Mode())
	e.SymlinkTarget = proto.String(valid(target))
}

func kind(m fs.FileMode) filesystem.FileType {
	switch {
	case m.IsRegular():
		return filesystem.FileType_FILE_TYPE_FILE
	case m.IsDir():
		return filesystem.FileType_FILE_TYPE_DIRECTORY
	case m&fs.ModeSymlink != 0:
		return filesystem.FileType_FILE_TYPE_SYMLINK
	}
	return filesystem.FileType_FILE_TYPE_UNSPECIFIED
}

func permissions(m fs.FileMode) uint32 { return uint32(m.Perm()) }

func userName(id uint32) string {
	s := strconv.FormatUint(uint64(id), 10)
	if u, err := user.LookupId(s); err == nil {
		return u.Username
	}
	return s
}

func groupName(id uint32) string {
	s := strconv.FormatUint(uint64(id), 10)
	if g, err := user.LookupGroupId(s); err == nil {
		return g.Name
	}
	return s
}

// valid replaces invalid UTF-8 in a file name, because messages need valid text.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

const (
	// metadataPrefix begins the extended attributes that hold clients' metadata.
	metadataPrefix = "user.e2b."
	maxMetadata    = 4096
	maxMetadataKey = 246
)

func readMetadata(path string) map[string]string {
	names, err := attributes(path)
	if err != nil {
		return nil
	}
	var out map[string]string
	for _, name := range names {
		key, ok := strings.CutPrefix(name, metadataPrefix)
		if !ok {
			continue
		}
		buf := make([]byte, maxMetadata)
		n, err := unix.Getxattr(path, name, buf)
		if err != nil {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[valid(key)] = valid(string(buf[:n]))
	}
	return out
}

func attributes(path string) ([]string, error) {
	n, err := unix.Listxattr(path, nil)
	if err != nil || n == 0 {
		return nil, err
	}
	buf := make([]byte, n)
	if n, err = unix.Listxattr(path, buf); err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00"), nil
}

// writeMetadata replaces all metadata of a file.
func writeMetadata(path string, md map[string]string) error {
	names, err := attributes(path)
	if err != nil && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, metadataPrefix) {
			if err := unix.Removexattr(path, name); err != nil {
				return err
			}
		}
	}
	for k, v := range md {
		if err := unix.Setxattr(path, metadataPrefix+k, []byte(v), 0); err != nil {
			return err
		}
	}
	return nil
}
