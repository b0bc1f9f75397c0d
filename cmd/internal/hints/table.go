package hints

import "github.com/forkd/forkd/api"

// byReason returns the table of advice by reason. A word in braces stands for the detail of that
// name.
func byReason() map[api.Reason]string {
	return map[api.Reason]string{
		api.ReasonAgentOld:           "make it again from an image that this version of forkd built",
		api.ReasonAgentSilent:        "look at its console",
		api.ReasonAncestryGone:       "no snapshot of its ancestry is left",
		api.ReasonBranchFailed:       "branch again; `forkd snapshot rm {tag}` clears it from the list",
		api.ReasonBranchesBusy:       "try again when one of them has ended",
		api.ReasonChildBrokeOff:      "try again; `forkd logs` of a child shows its console",
		api.ReasonColdPause:          "pause it with its memory: without --filesystem-only",
		api.ReasonDependentSandboxes: "kill them first, or use --force: they live on",
		api.ReasonDependentSnapshots: "delete them first, or use --cascade to delete them too, or --force to leave them",
		api.ReasonDigestsNotReady:    "try again in a moment",
		api.ReasonDirectoryInUse:     "stop the other daemon, or give this one directories of its own",
		api.ReasonDirectoryRefused:   "name a directory of the daemon's own",
		api.ReasonDiskLimit: "the limit is its own, from its fork, and stays: put it back with " +
			"`forkd rollback {sandbox} TAG`, or kill it and fork with more (`forkd fork TAG --disk-limit-mib N`); " +
			"`forkd inspect {sandbox}` shows the limit",
		api.ReasonDiskLostWrites: "fork another, or branch with --force to save what there is",
		api.ReasonDiskNoRoom: "make room on the file system of the daemon's data (kill sandboxes, " +
			"delete snapshots or images); it goes on by itself",
		api.ReasonDiskPromised: "kill sandboxes, ask for fewer or for smaller disks (--disk-limit-mib), or start " +
			"the daemon with a larger --disk-overcommit",
		api.ReasonEvalTimeout: "what was defined before may be lost; raise the timeout",
		api.ReasonHostMemory: "kill sandboxes, ask for fewer, or give the host (or the machine) more memory; the daemon's " +
			"--memory-reserve stays free",
		api.ReasonHostDescriptors: "kill sandboxes, ask for fewer, or start the daemon with a larger limit of open " +
			"files (LimitNOFILE of its unit, ulimit -n)",
		api.ReasonHostPressure: "try again in ten seconds; `forkd capacity` shows the pressure and the bounds of the " +
			"daemon's --pressure",
		api.ReasonHostThreads: "kill sandboxes, ask for fewer, or raise kernel.pid_max and kernel.threads-max, or " +
			"TasksMax of the daemon's unit",
		api.ReasonMemoryPromised: "kill sandboxes, ask for fewer or with a --memory-limit-mib, or start the daemon with " +
			"a larger --memory-overcommit; `forkd capacity` shows what is promised",
		api.ReasonImageDamaged:  "remove the image and build it again",
		api.ReasonImageMissing:  "`forkd image ls` shows the images there are",
		api.ReasonImageNotFound: "`forkd image ls` shows the images there are, `forkd image build` makes one",
		api.ReasonKernelUnusable: "name a kernel for x86-64, as an ELF file or bzImage, or an " +
			"image: `forkd image build` makes one",
		api.ReasonLimitUnsupported: "run it in the machine (--machine), or start the daemon as a service with " +
			"Delegate=yes; `forkd doctor` tells what is missing",
		api.ReasonNetOff: "put the program forkd-net beside forkd and start the daemon again; " +
			"`forkd doctor` looks for it",
		api.ReasonNetRule: "a rule is host[:port[-port]][/tcp|udp], such as pypi.org:443, *.example.com or " +
			"198.51.100.0/24",
		api.ReasonNetSecret:   "give the header's value",
		api.ReasonNetStarting: "try again in a moment; the policy is kept, and holds from then on",
		api.ReasonNetTap: "the operator allows taps with `forkd serve --net-tap`, and makes them with `ip tuntap add`; " +
			"one sandbox has one, and no policy with it",
		api.ReasonNetTapBusy:    "end what has it, or take another tap",
		api.ReasonNotAFile:      "give the path of a file on the daemon's host",
		api.ReasonNoAncestor:    "`forkd snapshot tree` shows what descends from what; --base names a snapshot",
		api.ReasonNoPlace:       "`forkd snapshot tree` shows what descends from what",
		api.ReasonNotInAncestry: "these would do: {tags}",
		api.ReasonOperatorOnly:  "ask the operator of the daemon",
		api.ReasonOverlayNoRoom: "free some space in the store (kill sandboxes, delete " +
			"snapshots or images) and try again",
		api.ReasonPauseTooLong:   "allow a longer pause, or branch when the sandbox writes less",
		api.ReasonPinDamaged:     "move that file out of the store's layers/pins if nothing needs it",
		api.ReasonProgramFailed:  "correct the command; nothing was kept",
		api.ReasonProgramTimeout: "allow it more time; nothing was kept",
		api.ReasonQuota:          "end what is not needed, or ask the operator for a key with more {quota}",
		api.ReasonReceiptNotFound: "receipts are kept for a month and while what they tell of exists; " +
			"`forkd ps` and `forkd snapshot ls` show what there is",
		api.ReasonPortRefused: "start a server in the sandbox that listens on port {port}; its localhost is enough. " +
			"`forkd exec {sandbox} -- ss -ltn` shows what listens",
		api.ReasonPortTimeout: "look whether the server accepts connections, and for firewall rules in the guest",
		api.ReasonPortsBusy:   "close some of them, and try again",
		api.ReasonRestoreRefused: "make it again on this host with `forkd snapshot create`; `forkd " +
			"snapshot verify` tells whether it is damaged",
		api.ReasonTransitionBusy:    "try again with fewer requests at the same time",
		api.ReasonTransitionSlow:    "try again; `forkd inspect {sandbox}` shows its status",
		api.ReasonResumesBusy:       "try again when some of them run",
		api.ReasonSameTag:           "choose another tag: the snapshot itself stays as it is",
		api.ReasonSandboxBroken:     "roll it back with `forkd rollback {sandbox} TAG`, or kill it and fork another",
		api.ReasonSandboxEnded:      "fork another",
		api.ReasonSandboxFailed:     "kill it and fork another",
		api.ReasonSandboxPaused:     "`forkd resume {sandbox}` lets it go on",
		api.ReasonSandboxRolledBack: "what ran in it has ended; run it again",
		api.ReasonSnapshotDamaged: "make it again with `forkd snapshot create`; if its file was put right, `forkd " +
			"snapshot verify {tag}` reads it again and lets it be forked",
		api.ReasonSnapshotNotFound: "`forkd snapshot ls` shows the snapshots there are",
		api.ReasonSnapshotNotReady: "try again when it is ready",
		api.ReasonStoreFull: "free some space in the store (delete snapshots or images) and " +
			"try again; nothing half-written remains",
		api.ReasonTagTaken:            "choose another tag, or delete that snapshot first",
		api.ReasonWaitForChildren:     "fork from the tag in a call of its own: it waits until the snapshot is ready",
		api.ReasonWarmUpFailed:        "correct the warm-up code",
		api.ReasonGuestFilesElsewhere: "put it there, or start the daemon with one more --guest-files",
		api.ReasonGuestFilesOff: "start the daemon with `forkd serve --guest-files DIR`, or " +
			"make an image: `forkd image build`",
		api.ReasonSocketForeign: "use it as that user or as root, or start the daemon " +
			"with --token-file and show that token",
		api.ReasonScopeMissing:  "use a key with the scope {scope}, or have one made: `forkd key create`",
		api.ReasonTokenUnwanted: "leave out --token and FORKD_TOKEN, or start the daemon with --token-file",
		api.ReasonVerifyFailed: "delete it with `forkd snapshot rm {tag}`, and make it " +
			"again with `forkd snapshot create`",
		api.ReasonAgentLinks:            "copy what links lead to with -L, or make the snapshot anew",
		api.ReasonGuestDirectoryMissing: "make it first: `forkd exec {sandbox} -- mkdir -p {directory}`",
		api.ReasonLocalDirectoryMissing: "make it first: `mkdir -p {directory}`",
		api.ReasonMaybeDone: "`forkd ps` and `forkd snapshot ls` show what there is; `forkd " +
			"serve` starts the daemon if it has ended",
		api.ReasonTLSClientCertificate: "show one that an authority of the daemon's --tls-client-ca has signed: " +
			"--tls-client-cert and --tls-client-key",
		api.ReasonTLSScheme: "begin the URL with https:// if the daemon has a certificate, and with http:// if not",
		api.ReasonTLSUntrusted: "give the fingerprint that the daemon logs when it starts (--tls-fingerprint), or have " +
			"this host trust who signed its certificate",

		// Of the machine, which is not part of the API.
		"machine_agent_other":  "`forkd machine start --restart` renews it",
		"machine_daemon_ended": "`forkd machine exec --name {machine} -- tail {log}` says more",
		"machine_differs":      "`forkd machine start --name {machine} --restart`, with the same flags, applies them",
		"machine_no_terminal":  "`forkd machine exec` runs one command without",
	}
}

// byCode returns advice about errors without a reason. It applies only to errors from the daemon,
// or about reaching it. Errors of a guest's agent have the same codes but other causes.
func byCode() map[api.Code]string {
	return map[api.Code]string{
		api.CodeNotFound:      "`forkd snapshot ls`, `forkd ps` and `forkd image ls` show what there is",
		api.CodeNotRestorable: "`forkd snapshot verify` tells what is damaged; make it again with `forkd snapshot create`",
		api.CodeBootFailed:    "read the last lines of the console, which the error shows",
		api.CodeGuestGone:     "`forkd logs` shows its console, if it is still listed in `forkd ps`",
		api.CodeTimeout:       "ask for a longer limit, or look at the console with `forkd logs`",
		api.CodeNoSpace:       "remove snapshots (`forkd snapshot rm`) or images (`forkd image rm`)",
		api.CodeNoMemory:      "kill sandboxes (`forkd kill`), fork fewer, or make the pool smaller (`forkd pool`)",
		api.CodeNoResources:   "kill sandboxes (`forkd kill`), or fork fewer; `forkd capacity` shows what is left",
		api.CodeBusy:          "try again in a moment",
		api.CodeInternal:      "the daemon's log says more",
		api.CodeUnauthorized: "set FORKD_TOKEN, or pass --token, with the content of the daemon's token file: " +
			"its --token-file, or the file token in its --run directory",
		api.CodeUnreachable: "start it with `forkd serve`, or point --url or FORKD_URL to one that runs",
		api.CodeBroken:      "try again; `forkd serve` starts the daemon if it has ended",
	}
}
