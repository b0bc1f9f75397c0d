package hints

import "github.com/forkd/forkd/api"

// byReason returns the table of advice by reason. A word in braces stands for the detail of that
// name.
func byReason() map[api.Reason]string {
	return map[api.Reason]string{
		api.ReasonAgentOld:     "rebuild the snapshot from an image built by this version",
		api.ReasonAgentSilent:  "check its console",
		api.ReasonAncestryGone: "no snapshot of its ancestry exists; fork a new sandbox",
		api.ReasonAnswerNoRoom: "the code ran, so its effects are there: read the result in smaller parts, or " +
			"write it to a file",
		api.ReasonBranchFailed:       "branch again; `forkd snapshot rm {tag}` removes it from the list",
		api.ReasonBranchesBusy:       "retry when one has finished",
		api.ReasonChildBrokeOff:      "retry; `forkd logs` of a child shows its console",
		api.ReasonColdPause:          "pause it without --filesystem-only, with its memory",
		api.ReasonDependentSandboxes: "kill them first, or use --force, which keeps them running",
		api.ReasonDependentSnapshots: "delete them first, or use --cascade to delete them too, or --force to keep them",
		api.ReasonDigestsNotReady:    "retry in a moment",
		api.ReasonDirectoryInUse:     "stop the other daemon, or use other directories (--data, --run)",
		api.ReasonDirectoryRefused:   "use an empty directory owned by the daemon's user",
		api.ReasonDiskLimit: "the limit was set at its fork and cannot be changed: roll it back with " +
			"`forkd rollback {sandbox} TAG`, or kill it and fork with a higher limit (`forkd fork TAG --disk-limit-mib N`); " +
			"`forkd ps --json` shows the limit",
		api.ReasonDiskLostWrites: "fork another sandbox, or branch with --force to save the current state",
		api.ReasonDiskNoRoom: "free space on the file system of the daemon's data (kill sandboxes, " +
			"delete snapshots or images); the sandbox then continues automatically",
		api.ReasonDiskPromised: "kill sandboxes, ask for fewer or for smaller disks (--disk-limit-mib), or start " +
			"the daemon with a larger --disk-overcommit",
		api.ReasonEvalTimeout: "earlier definitions may be lost; raise the timeout",
		api.ReasonHostMemory: "kill sandboxes, ask for fewer, or give the host (or the machine) more memory; the daemon's " +
			"--memory-reserve stays free",
		api.ReasonHostDescriptors: "kill sandboxes, ask for fewer, or start the daemon with a larger limit of open " +
			"files (LimitNOFILE of its unit, ulimit -n)",
		api.ReasonHostPressure: "retry in ten seconds; `forkd capacity` shows the pressure and the limits of the " +
			"daemon's --pressure",
		api.ReasonHostThreads: "kill sandboxes, ask for fewer, or raise kernel.pid_max and kernel.threads-max, or " +
			"TasksMax of the daemon's unit",
		api.ReasonMemoryPromised: "kill sandboxes, ask for fewer or with a --memory-limit-mib, or start the daemon with " +
			"a larger --memory-overcommit; `forkd capacity` shows the promised memory",
		api.ReasonImageDamaged:  "remove the image and build it again",
		api.ReasonImageMissing:  "`forkd image ls` lists the images",
		api.ReasonImageNotFound: "`forkd image ls` lists the images, `forkd image build` makes one",
		api.ReasonKernelUnusable: "use an x86-64 kernel, an ELF file or bzImage, or an " +
			"image made by `forkd image build`",
		api.ReasonLimitUnsupported: "run it in the machine (--machine), or start the daemon as a service with " +
			"Delegate=yes; `forkd doctor` shows the missing parts",
		api.ReasonNetOff: "install forkd-net beside forkd and restart the daemon; " +
			"`forkd doctor` checks for it",
		api.ReasonNetRule: "a rule is host[:port[-port]][/tcp|udp], such as pypi.org:443, *.example.com or " +
			"198.51.100.0/24",
		api.ReasonNetSecret:   "send the header's value",
		api.ReasonNetStarting: "retry in a moment; the policy is stored and applies afterwards",
		api.ReasonNetTap: "the operator allows taps with `forkd serve --net-tap`, and makes them with `ip tuntap add`; " +
			"a tap serves one sandbox, without a policy",
		api.ReasonNetTapBusy:      "end its user, or use another tap",
		api.ReasonNotAFile:        "use the path of a file on the daemon's host",
		api.ReasonNoNode:          "retry later, kill sandboxes, or add nodes; the gateway's metrics show its nodes",
		api.ReasonNetworkAlias:    "choose another alias, or none for many children; `forkd net inspect NAME` lists the members",
		api.ReasonNetworkEmpty:    "`forkd net inspect NAME` lists its members, and `forkd resume ID` resumes a paused one",
		api.ReasonNetworkExists:   "choose another name; `forkd net ls` lists the networks",
		api.ReasonNetworkInUse:    "`forkd net inspect NAME` lists the members: wait until they end, or kill them",
		api.ReasonNetworkNotFound: "`forkd net create NAME` makes one, `forkd net ls` lists the others",
		api.ReasonNodeSilent:      "look for the sandboxes with `forkd ps` before another attempt",
		api.ReasonNodeUnreachable: "retry later; the gateway's log and metrics name the node",
		api.ReasonNoAncestor:      "`forkd snapshot tree` shows the lineage; --base names a snapshot",
		api.ReasonNoPlace:         "`forkd snapshot tree` shows the lineage",
		api.ReasonNotInAncestry:   "valid snapshots: {tags}",
		api.ReasonOperatorOnly:    "ask the operator of the daemon",
		api.ReasonOverlayNoRoom: "free space in the store (kill sandboxes, delete " +
			"snapshots or images) and retry",
		api.ReasonPauseTooLong:   "allow a longer pause, or branch while the sandbox writes less",
		api.ReasonPinDamaged:     "move the file out of the store's layers/pins if it is not needed",
		api.ReasonProgramFailed:  "correct the command; no snapshot was made",
		api.ReasonProgramTimeout: "raise its time limit; no snapshot was made",
		api.ReasonQuota:          "end unused sandboxes, or ask the operator for a key with more {quota}",
		api.ReasonReceiptNotFound: "receipts are kept for a month, and as long as their sandbox or snapshot exists; " +
			"`forkd ps` and `forkd snapshot ls` list the current ones",
		api.ReasonPortRefused: "start a server on port {port} in the sandbox, on localhost or any address. " +
			"`forkd exec {sandbox} -- ss -ltn` lists listening servers",
		api.ReasonPortTimeout: "check that the server accepts connections, and check firewall rules in the guest",
		api.ReasonPortsBusy:   "close some of them and retry",
		api.ReasonRestoreRefused: "rebuild it on this host with `forkd snapshot create`; `forkd " +
			"snapshot verify` checks it for damage",
		api.ReasonTransitionBusy: "retry with fewer concurrent requests",
		api.ReasonTransitionSlow: "retry; `forkd inspect {sandbox}` shows its status",
		api.ReasonUnsigned: "push it again with `forkd push --sign-key FILE`, with a key that the operator trusts, " +
			"and pull it from the registry",
		api.ReasonResumesBusy:       "retry when some of them are running",
		api.ReasonSameTag:           "choose another tag; the original snapshot stays unchanged",
		api.ReasonSandboxBroken:     "roll it back with `forkd rollback {sandbox} TAG`, or kill it and fork a new one",
		api.ReasonSandboxEnded:      "fork a new sandbox",
		api.ReasonSandboxFailed:     "kill it and fork a new sandbox",
		api.ReasonSandboxBound:      "resume it at its daemon, or fork a new sandbox from a snapshot",
		api.ReasonSandboxMoved:      "ask the daemon which has it now",
		api.ReasonSandboxUnsettled:  "repeat the request; `forkd kill {sandbox}` drops the copy",
		api.ReasonSandboxPaused:     "`forkd resume {sandbox}` resumes it",
		api.ReasonSandboxRolledBack: "its earlier programs have ended; start them again",
		api.ReasonSecretNotFound:    "`forkd secret set {secret}` makes it, `forkd secret ls` lists the others",
		api.ReasonSecretUnreadable:  "`forkd secret set {secret}` sets it again, `forkd secret rm {secret}` removes it",
		api.ReasonSecretsOff: "make a key with `forkd secret generate-key FILE`, and start the daemon with " +
			"--secrets-key FILE",
		api.ReasonIdentityOff:    "start the daemon with --identity-issuer URL",
		api.ReasonVolumeExists:   "choose another name; `forkd volume ls` lists the volumes",
		api.ReasonLabelReserved:  "choose another key: docs/use/labels.md names the reserved labels",
		api.ReasonVolumeHeld:     "`forkd volume ls` shows the sandbox: wait until it ends, or kill it",
		api.ReasonVolumeMode:     "use private, clone, share-ro or move",
		api.ReasonVolumeNotFound: "`forkd volume create NAME` makes one, `forkd volume ls` lists the others",
		api.ReasonVolumeOther:    "choose a snapshot that was branched from the sandbox while it had its volumes",
		api.ReasonVolumePath:     "choose a directory such as /data",
		api.ReasonVolumePrivate:  "fork one child, or use --volume-mode clone or share-ro",
		api.ReasonVolumeSlots:    "make the snapshot again from its image, with this forkd",
		api.ReasonTainted: "rotate the secret with `forkd secret set {secret}` or remove it, or make the snapshot from a " +
			"sandbox without it",
		api.ReasonSnapshotDamaged: "rebuild it with `forkd snapshot create`; if its file was repaired, `forkd " +
			"snapshot verify {tag}` checks it again and enables it",
		api.ReasonSnapshotPartial:  "wait until all of it is here; `forkd snapshot ls` shows how much has arrived",
		api.ReasonSnapshotNotFound: "`forkd snapshot ls` lists the snapshots",
		api.ReasonSnapshotNotReady: "retry when it is ready",
		api.ReasonSnapshotPinned:   "unpin it with `forkd snapshot unpin`, or use --force",
		api.ReasonStoreFull: "free space in the store (delete snapshots or images) and " +
			"retry; partial files were removed",
		api.ReasonTagTaken:            "choose another tag, or delete the existing snapshot first",
		api.ReasonWaitForChildren:     "fork from the tag in a separate call, which waits until the snapshot is ready",
		api.ReasonWarmUpFailed:        "correct the warm-up code, or the image's service",
		api.ReasonGuestFilesElsewhere: "move it there, or start the daemon with another --guest-files",
		api.ReasonGuestFilesOff: "start the daemon with `forkd serve --guest-files DIR`, or " +
			"build an image with `forkd image build`",
		api.ReasonSocketForeign: "connect as the daemon's user or as root, or start the daemon " +
			"with --token-file and use its token",
		api.ReasonScopeMissing:  "use a key with the scope {scope}, or make one with `forkd key create`",
		api.ReasonTokenUnwanted: "leave out --token and FORKD_TOKEN, or start the daemon with --token-file",
		api.ReasonVerifyFailed: "delete it with `forkd snapshot rm {tag}`, and rebuild it " +
			"with `forkd snapshot create`",
		api.ReasonAgentLinks:            "follow links with -L, or rebuild the snapshot",
		api.ReasonGuestDirectoryMissing: "create it with `forkd exec {sandbox} -- mkdir -p {directory}`",
		api.ReasonLocalDirectoryMissing: "create it with `mkdir -p {directory}`",
		api.ReasonMaybeDone: "`forkd ps` and `forkd snapshot ls` list the current ones; `forkd " +
			"serve` starts the daemon if it has ended",
		api.ReasonTLSClientCertificate: "present a certificate signed by an authority of the daemon's --tls-client-ca: " +
			"--tls-client-cert and --tls-client-key",
		api.ReasonTLSScheme: "use https:// if the daemon has a certificate, otherwise http://",
		api.ReasonTLSUntrusted: "pass the fingerprint in the daemon's log (--tls-fingerprint), or configure " +
			"this host to trust its authority",

		// Of the machine, which is not part of the API.
		"machine_agent_other":  "`forkd machine start --restart` updates it",
		"machine_daemon_ended": "`forkd machine exec --name {machine} -- tail {log}` shows more",
		"machine_differs":      "`forkd machine start --name {machine} --restart`, with the same flags, applies them",
		"machine_no_terminal":  "`forkd machine exec` runs a command without a terminal",
	}
}

// byCode returns advice about errors without a reason. It applies only to errors from the daemon,
// or about reaching it. Errors of a guest's agent have the same codes but other causes.
func byCode() map[api.Code]string {
	return map[api.Code]string{
		api.CodeNotFound:      "`forkd snapshot ls`, `forkd ps` and `forkd image ls` list the names",
		api.CodeNotRestorable: "`forkd snapshot verify` lists the damage; rebuild the snapshot with `forkd snapshot create`",
		api.CodeBootFailed:    "read the last lines of the console in the error",
		api.CodeGuestGone:     "`forkd logs` shows its console, if it is still in `forkd ps`",
		api.CodeTimeout:       "raise the timeout, or check the console with `forkd logs`",
		api.CodeNoSpace:       "remove snapshots (`forkd snapshot rm`) or images (`forkd image rm`)",
		api.CodeNoMemory:      "kill sandboxes (`forkd kill`), fork fewer, or make the pool smaller (`forkd pool`)",
		api.CodeNoResources:   "kill sandboxes (`forkd kill`), or fork fewer; `forkd capacity` shows the free resources",
		api.CodeBusy:          "retry in a moment",
		api.CodeDraining: "use another daemon, or retry after the maintenance; " +
			"the operator ends it with `forkd drain --cancel`",
		api.CodeInternal: "run `forkd support` and report the error with its bundle; the daemon's log has the details",
		api.CodeUnauthorized: "set FORKD_TOKEN, or pass --token, with the content of the daemon's token file: " +
			"its --token-file, or the file token in its --run directory",
		api.CodeUnreachable: "start it with `forkd serve`, or set --url or FORKD_URL to a running daemon",
		api.CodeBroken:      "retry; `forkd serve` starts the daemon if it has ended",
	}
}
