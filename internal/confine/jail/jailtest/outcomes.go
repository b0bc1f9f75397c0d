package jailtest

import "strings"

// Killed is the outcome of an attempt denied by a system call filter.
const Killed = "killed"

// Outcome holds the expected results of an attempt. If there are several words, each one is acceptable: kernels
// differ in features and in the order of their checks.
type Outcome struct {
	// Alone is for a process in a jail without filters. OK means that only a filter prevents the attempt; so does
	// an error for nothing but invalid arguments.
	Alone string
	// Rootless, if set, is for a jail created by an unprivileged user.
	Rootless string
	// Spawn, if set, is for the filter installed before the program starts: Killed or an error.
	Spawn string
	// VM is for the threads of a VMM. If empty, it is Killed.
	VM string
}

// Is reports whether a result is one of the words.
func Is(got, want string) bool {
	for word := range strings.FieldsSeq(want) {
		if got == word {
			return true
		}
	}
	return false
}

// Outcomes has the Outcome of each attempt, by name. The threads of vCPUs have an additional filter: there, an
// attempt allowed by VM is either killed or has the same result.
var Outcomes = map[string]Outcome{
	"a file of the host":                   {Alone: "ENOENT"},
	"a file of the daemon":                 {Alone: "ENOENT"},
	"the root":                             {Alone: "EACCES"},
	"above the root":                       {Alone: "ENOENT"},
	"/proc of itself":                      {Alone: "ENOENT"},
	"/proc of another":                     {Alone: "ENOENT"},
	"a descriptor by /proc":                {Alone: "ENOENT"},
	"a device":                             {Alone: "ENOENT"},
	"KVM by its name":                      {Alone: "ENOENT"},
	"a new file":                           {Alone: "EROFS"},
	"a file without a name":                {Alone: "EROFS"},
	"a file by openat2":                    {Alone: "ENOENT"},
	"a file by its handle":                 {Alone: "EPERM", Spawn: Killed},
	"a device node":                        {Alone: "EROFS"},
	"a directory":                          {Alone: "EROFS"},
	"a link to what it has":                {Alone: "EROFS ENOENT"}, // before Linux 6.10: ENOENT
	"removing a file":                      {Alone: "ENOENT"},
	"cutting a file":                       {Alone: "ENOENT"},
	"removing the root":                    {Alone: "EPERM", Spawn: Killed},
	"writing what it may read":             {Alone: "EBADF", VM: "EBADF"},
	"cutting what it may read":             {Alone: "EINVAL", VM: "EINVAL"},
	"a hole in what it may read":           {Alone: "EBADF", VM: "EBADF"},
	"mapping what it may read for writing": {Alone: "EACCES", VM: "EACCES"},
	// Allowed for the daemon's own user, which it is for the kernel without root.
	"rights of what it may read": {Alone: "EPERM EROFS", Rootless: OK},
	"times of what it may read":  {Alone: "EPERM EROFS", Rootless: OK},
	// Mapped for reading only, whatever the file's permissions are.
	"making what it may read writable in memory": {Alone: "EACCES"},
	// It shares no lock, and forkd takes no locks on layers. The filter keeps it that way.
	"a lock on what it may read":        {Alone: OK},
	"a record lock on what it may read": {Alone: OK},
	"a lease on what it may read":       {Alone: "EACCES", Rootless: OK},
	"watching files":                    {Alone: OK + " EPERM ENOSYS"}, // its root has no files

	"a program of the host":                       {Alone: "ENOENT"},
	"its own program":                             {Alone: "ENOENT"},
	"a program from memory":                       {Alone: "ENOEXEC EACCES"}, // Landlock does not apply to such files
	"a process":                                   {Alone: OK},
	"a process in a namespace":                    {Alone: OK + " EPERM ENOSPC", Spawn: Killed},
	"executable memory":                           {Alone: OK},
	"memory made executable":                      {Alone: OK},
	"memory that is executable as it can be read": {Alone: OK},
	"a file in memory":                            {Alone: OK},
	"tracing a process":                           {Alone: "ESRCH", Spawn: Killed},
	"a process's memory":                          {Alone: "ESRCH", Spawn: Killed},
	"writing a process's memory":                  {Alone: "ESRCH", Spawn: Killed},
	"a handle of a process":                       {Alone: "ESRCH", Spawn: Killed},
	"a descriptor of a process":                   {Alone: "EBADF", Spawn: Killed}, // it has no handle of a process
	"a process's pages":                           {Alone: "ESRCH ENOSYS"},
	"a signal to a process":                       {Alone: "ESRCH"},
	"signals to all":                              {Alone: "ESRCH"},
	"a signal to a thread":                        {Alone: "ESRCH"},
	"a queued signal":                             {Alone: "ESRCH"},
	"signals of a file":                           {Alone: "ESRCH"},
	"another's CPUs":                              {Alone: "ESRCH"},
	"another's priority":                          {Alone: "ESRCH"},
	"another's limits":                            {Alone: "ESRCH"},
	"comparing with a process":                    {Alone: "ESRCH ENOSYS", Spawn: Killed},
	// In an IPC namespace without other processes.
	"memory that others can share": {Alone: OK + " ENOSYS"},
	"a message queue":              {Alone: OK + " EACCES ENOSYS"},

	"an abstract socket":   {Alone: "ECONNREFUSED EPERM", Spawn: Killed},
	"a socket by its path": {Alone: "ENOENT", Spawn: Killed},
	"TCP to the host":      {Alone: "EACCES ENETUNREACH ECONNREFUSED", Spawn: Killed},
	"a TCP listener":       {Alone: "EACCES " + OK, Spawn: Killed},
	"an abstract name":     {Alone: OK, Spawn: Killed}, // in a network namespace shared by VMMs only
	"a raw socket":         {Alone: "EPERM", Spawn: Killed},
	"a packet socket":      {Alone: "EPERM EAFNOSUPPORT", Spawn: Killed},
	// vsock has no namespaces; only the filter denies it.
	"a vsock of the host":        {Alone: OK + " EAFNOSUPPORT", Spawn: Killed},
	"another peer of its socket": {Alone: "EINVAL", Spawn: Killed},
	"a program on its socket":    {Alone: OK},

	"a mount":                     {Alone: "EPERM", Spawn: Killed},
	"a file system":               {Alone: "EPERM", Spawn: Killed},
	"chroot":                      {Alone: "EPERM", Spawn: Killed},
	"pivot_root":                  {Alone: "EPERM", Spawn: Killed},
	"a network namespace":         {Alone: "EPERM", Spawn: Killed},
	"a mount namespace":           {Alone: "EPERM", Spawn: Killed},
	"a namespace by a descriptor": {Alone: "EINVAL", Spawn: Killed},
	"another host name":           {Alone: "EPERM"},

	"another user":             {Alone: "EPERM", Rootless: "EINVAL"},
	"root":                     {Alone: "EPERM", Rootless: OK}, // it is the only user of its namespace
	"a group":                  {Alone: "EPERM"},
	"a capability":             {Alone: "EPERM"},
	"a capability by an exec":  {Alone: "EPERM"},
	"new privileges again":     {Alone: "EINVAL"},
	"other securebits":         {Alone: "EPERM"},
	"being dumped":             {Alone: OK}, // it sees no other process that could do this
	"a filter with a listener": {Alone: OK},
	"no filter":                {Alone: "EINVAL"},

	"more descriptors":              {Alone: "EPERM"},
	"core dumps":                    {Alone: "EPERM"},
	"larger files":                  {Alone: "EPERM"},
	"locked memory":                 {Alone: "EPERM"},
	"a raised priority":             {Alone: "EACCES"},
	"real time":                     {Alone: "EPERM"},
	"a raised priority of its disk": {Alone: "EPERM"},

	"a BPF map":                   {Alone: OK + " EPERM ENOSYS", Spawn: Killed},
	"performance counters":        {Alone: "EACCES EPERM ENOENT ENOSYS", Spawn: Killed},
	"a key":                       {Alone: OK + " ENOSYS", Spawn: Killed},
	"io_uring":                    {Alone: OK + " ENOMEM EPERM ENOSYS", Spawn: Killed},
	"userfaultfd":                 {Alone: OK + " EPERM ENOSYS"},             // it may need one before its VM exists
	"a userfaultfd of the device": {Alone: OK + " ENOTTY EINVAL " + Nothing}, // it was given the device for this
	"a kernel module":             {Alone: "EPERM ENOSYS", Spawn: Killed},
	"the clock":                   {Alone: "EPERM"},
	"a restart of the host":       {Alone: "EPERM", Spawn: Killed},
	"the kernel's log":            {Alone: OK + " EPERM ENOSYS", Spawn: Killed},
	"another VM":                  {Alone: "ENOTTY EINVAL " + Nothing},
	"typing into a terminal":      {Alone: "ENOTTY EINVAL"},
	"a slot of memory":            {Alone: "EBADF"},

	// Limited by a control group.
	"all processes that there can be":   {Alone: OK + " EAGAIN"},
	"all descriptors that there can be": {Alone: "EMFILE", VM: "EMFILE"},
}
