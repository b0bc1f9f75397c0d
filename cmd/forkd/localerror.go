package main

import (
	"errors"
	"io/fs"
	"net"
	"syscall"

	"github.com/forkd/forkd/api"
)

// localCode returns the code of an error of this host's files or addresses. It is empty for other
// errors.
func localCode(err error) api.Code {
	var address *net.AddrError
	var name *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, fs.ErrExist):
		return api.CodeConflict
	case errors.As(err, &address), errors.As(err, &name), errors.Is(err, syscall.EADDRNOTAVAIL):
		return api.CodeInvalid
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		return api.CodeInvalid
	case errors.Is(err, fs.ErrNotExist):
		return api.CodeNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return api.CodeForbidden
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return api.CodeNoSpace
	}
	return ""
}
