// Package idmap gives the VMs of an ordinary user's daemon their own users: it reads the ranges of
// subuid(5) and subgid(5), and writes the maps of user namespaces (user_namespaces(7)).
//
// Writing a map of others' IDs takes CAP_SETUID or CAP_SETGID. newuidmap(1) is set-user-ID root for
// that. The program forkd-idmap has only the two capabilities and one job: it takes no ranges from
// its caller.
package idmap
