package jail

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Part is one thing that the jail takes away. Their numbers are part of the protocol of
// package spawner: a new one goes to the end.
type Part uint8

// The parts.
const (
	User        Part = iota // a user of its own: a uid of the range, or a user namespace
	Root                    // an empty read-only file system, in a mount namespace of its own
	PIDs                    // a PID namespace, in which it is alone
	IPC                     // an IPC namespace
	UTS                     // a UTS namespace
	CgroupNS                // a cgroup namespace
	Network                 // the empty network namespace that all VMMs share
	Caps                    // no capabilities, now or by an exec
	NoNewPrivs              // no_new_privs
	Files                   // Landlock: no file but the VMM's program and its own /proc
	TCP                     // Landlock: no TCP connection, no TCP listener
	Scope                   // Landlock: no abstract sockets of others, no signals to others
	Limits                  // resource limits
	OOM                     // the kernel ends a VMM before the daemon when memory runs out
	Descriptors             // descriptors that it was not meant to have are closed
	Calls                   // seccomp: a first filter of system calls, below those that the VMM adds itself
	Parts                   // how many there are
)

// facts are what people are told of a part.
var facts = [Parts]struct {
	name, what string
	// optional parts stand behind another: Network behind TCP, PIDs and Network behind Scope.
	optional bool
	clone    uintptr // flag of clone(2); 0: it is applied later
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

// What is what a VMM has or lacks by this part.
func (p Part) What() string { return facts[p].what }

// Optional: others do the same, in another way.
func (p Part) Optional() bool { return facts[p].optional }

// Set is a set of parts.
type Set uint32

// All are all parts.
const All Set = 1<<Parts - 1

// Has tells whether a part is in the set.
func (s Set) Has(p Part) bool { return s&(1<<p) != 0 }

// With is the set with another part.
func (s Set) With(p Part) Set { return s | 1<<p }

// Without is the set without a part.
func (s Set) Without(p Part) Set { return s &^ (1 << p) }

// Each calls fn for the parts of the set, in order.
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

// Needed are the parts without which a jail is not strict.
func Needed() (s Set) {
	All.Each(func(p Part) {
		if !p.Optional() {
			s = s.With(p)
		}
	})
	return s
}

// CloneFlags are those of the namespaces in the set. Network is none of them: the server
// of package spawner is in the namespace that all share.
func (s Set) CloneFlags() (flags uintptr) {
	s.Each(func(p Part) { flags |= facts[p].clone })
	return flags
}
