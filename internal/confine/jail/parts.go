package jail

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Part is one restriction of the jail. The numbers are part of package spawner's protocol, so new parts are added
// at the end.
type Part uint8

// The parts.
const (
	User        Part = iota // its own user: a uid of the range, or a user namespace
	Root                    // an empty read-only file system in its own mount namespace
	PIDs                    // its own PID namespace, without other processes
	IPC                     // an IPC namespace
	UTS                     // a UTS namespace
	CgroupNS                // a cgroup namespace
	Network                 // the empty network namespace shared by all VMMs
	Caps                    // no capabilities, now or after an exec
	NoNewPrivs              // no_new_privs
	Files                   // Landlock: only the VMM's program and its own /proc
	TCP                     // Landlock: no TCP connection, no TCP listener
	Scope                   // Landlock: no abstract sockets and no signals outside the jail
	Limits                  // resource limits
	OOM                     // the kernel kills a VMM before the daemon when memory runs out
	Descriptors             // unintended descriptors are closed
	Calls                   // seccomp: a first system call filter, in addition to the VMM's own
	Parts                   // number of parts
)

// facts has the description of each part.
var facts = [Parts]struct {
	name, what string
	// optional means that another part has the same effect: Network backs up TCP, PIDs and Network back up Scope.
	optional bool
	clone    uintptr // flag of clone(2); 0 if it is applied later
}{
	User:        {name: "user", what: "a user of its own"},
	Root:        {name: "root", what: "an empty read-only root", clone: unix.CLONE_NEWNS},
	PIDs:        {name: "pid namespace", what: "sees no other process", clone: unix.CLONE_NEWPID},
	IPC:         {name: "ipc namespace", what: "shares no System V IPC or message queues", clone: unix.CLONE_NEWIPC},
	UTS:         {name: "uts namespace", what: "a host name of its own", clone: unix.CLONE_NEWUTS},
	CgroupNS:    {name: "cgroup namespace", what: "sees no other control group", clone: unix.CLONE_NEWCGROUP},
	Network:     {name: "network namespace", what: "has no network device"},
	Caps:        {name: "capabilities", what: "has none, and gets none by an exec"},
	NoNewPrivs:  {name: "no_new_privs", what: "gains nothing by an exec"},
	Files:       {name: "landlock files", what: "opens nothing but its own /proc, executes nothing but itself"},
	TCP:         {name: "landlock tcp", what: "neither connects nor listens", optional: true},
	Scope:       {name: "landlock scope", what: "no abstract sockets of others, no signals to others", optional: true},
	Limits:      {name: "limits", what: "descriptors, file size, core dumps, locked memory"},
	OOM:         {name: "oom score", what: "ends before the daemon when memory runs out"},
	Descriptors: {name: "descriptors", what: "has those on the list only"},
	Calls:       {name: "seccomp", what: "makes no socket, mount or namespace from its first instruction on"},
}

func (p Part) String() string {
	if p < Parts {
		return facts[p].name
	}
	return "start"
}

// What describes the effect of a part on a VMM.
func (p Part) What() string { return facts[p].what }

// Optional reports whether other parts have the same effect.
func (p Part) Optional() bool { return facts[p].optional }

// Set is a set of parts.
type Set uint32

// All contains all parts.
const All Set = 1<<Parts - 1

// Has reports whether a part is in the set.
func (s Set) Has(p Part) bool { return s&(1<<p) != 0 }

// With returns the set with another part.
func (s Set) With(p Part) Set { return s | 1<<p }

// Without returns the set without a part.
func (s Set) Without(p Part) Set { return s &^ (1 << p) }

// Each calls fn for the parts of the set in order.
func (s Set) Each(fn func(Part)) {
	for p := range Parts {
		if s.Has(p) {
			fn(p)
		}
	}
}

func (s Set) String() string {
	var names []string
	s.Each(func(p Part) { names = append(names, p.String()) })
	return strings.Join(names, ", ")
}

// Needed returns the parts required for a strict jail.
func Needed() (s Set) {
	All.Each(func(p Part) {
		if !p.Optional() {
			s = s.With(p)
		}
	})
	return s
}

// CloneFlags returns the clone flags of the namespaces in the set. Network has no flag: package spawner's server
// is already in the shared namespace.
func (s Set) CloneFlags() (flags uintptr) {
	s.Each(func(p Part) { flags |= facts[p].clone })
	return flags
}
