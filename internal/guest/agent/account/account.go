// Package account looks up the guest's users and finds the user of a request. It reads the guest's
// /etc/passwd and /etc/group on every call, because commands may change them, and keeps no state.
// For a client, a Lookup of an unknown user is an authentication failure and not a missing file.
package account

import (
	"fmt"
	"net/http"
	"os/user"
	"slices"
	"strconv"
	"syscall"
)

// User is an account, with the data to run a process or to own a file.
type User struct {
	Name   string   // as in /etc/passwd, even if looked up by number
	UID    int      // 0 is root
	GID    int      // the primary group
	Groups []uint32 // all groups from /etc/group and /etc/passwd; nil if unreadable
	Home   string   // home directory; never empty
}

// UnknownUserError reports a name without an account in the guest.
type UnknownUserError struct {
	Name string // name or number, as requested
}

func (e *UnknownUserError) Error() string { return fmt.Sprintf("invalid username: '%s'", e.Name) }

// Lookup finds an account by name or by number.
func Lookup(name string) (User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return fallback(name)
		}
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err1 != nil || err2 != nil {
		return User{}, &UnknownUserError{name}
	}
	out := User{Name: u.Username, UID: uid, GID: gid, Home: u.HomeDir}
	if out.Home == "" {
		out.Home = "/"
	}
	ids, err := u.GroupIds()
	if err != nil {
		return out, nil // without /etc/group, only the primary group counts
	}
	for _, s := range ids {
		if id, err := strconv.ParseUint(s, 10, 32); err == nil {
			out.Groups = append(out.Groups, uint32(id))
		}
	}
	return out, nil
}

// fallback accepts root in an image without /etc/passwd.
func fallback(name string) (User, error) {
	if name == "root" || name == "0" {
		return User{Name: "root", Home: "/root"}, nil
	}
	return User{}, &UnknownUserError{name}
}

// Credential returns the credentials of a process of u. It returns nil if the agent is not root and
// u is the agent's own user, because such an agent may not change credentials.
func (u User) Credential(agentUID int) *syscall.Credential {
	if agentUID != 0 && agentUID == u.UID {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID), Groups: slices.Clone(u.Groups)}
}

// FromHeader returns the user name from HTTP Basic authentication, by which clients choose the
// user. The password is empty and ignored. Without a user name, it returns def.
func FromHeader(h http.Header, def string) string {
	r := http.Request{Header: h}
	if name, _, ok := r.BasicAuth(); ok && name != "" {
		return name
	}
	return def
}
