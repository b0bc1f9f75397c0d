// Package jailtest is what whoever owns a VMM's process would try: one Attempt each, made in the
// calling process and thread, told by the error number that stopped it. It owns the list, and no
// opinion: tests have tables of what each is to come to. It is for processes of tests alone and
// for the VMM that is built to be hostile (tag hostile of cmd/forkd-vmm); no program links it.
// The trap: a filter of system calls answers by ending the process, so what comes
// back is "ok" or an error number only where there is none.
package jailtest
