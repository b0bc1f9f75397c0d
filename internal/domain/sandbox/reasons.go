package sandbox

// Reason distinguishes errors of one kind if they need different advice. The API passes it on by this name; the
// client has the text of the advice.
type Reason string

const (
	ReasonAgentOld           Reason = "agent_old"
	ReasonAgentSilent        Reason = "agent_silent"
	ReasonAncestryGone       Reason = "ancestry_gone"
	ReasonAnswerNoRoom       Reason = "answer_no_room"
	ReasonBranchFailed       Reason = "branch_failed"
	ReasonBranchesBusy       Reason = "branches_busy"
	ReasonChildBrokeOff      Reason = "child_broke_off"
	ReasonColdPause          Reason = "cold_pause"
	ReasonDependentSandboxes Reason = "dependent_sandboxes"
	ReasonDependentSnapshots Reason = "dependent_snapshots"
	ReasonDigestsNotReady    Reason = "digests_not_ready"
	ReasonDirectoryInUse     Reason = "directory_in_use"
	ReasonDirectoryRefused   Reason = "directory_refused"
	ReasonDiskLimit          Reason = "disk_limit"
	ReasonDiskLostWrites     Reason = "disk_lost_writes"
	ReasonDiskNoRoom         Reason = "disk_no_room"
	ReasonDiskPromised       Reason = "disk_promised"
	ReasonEvalTimeout        Reason = "eval_timeout"
	ReasonHostDescriptors    Reason = "host_descriptors"
	ReasonHostMemory         Reason = "host_memory"
	ReasonHostPressure       Reason = "host_pressure"
	ReasonHostThreads        Reason = "host_threads"
	ReasonImageDamaged       Reason = "image_damaged"
	ReasonImageMissing       Reason = "image_missing"
	ReasonImageNotFound      Reason = "image_not_found"
	ReasonKernelUnusable     Reason = "kernel_unusable"
	ReasonLimitUnsupported   Reason = "limit_unsupported"
	ReasonMemoryPromised     Reason = "memory_promised"
	ReasonNetOff             Reason = "net_off"
	ReasonNetRule            Reason = "net_rule"
	ReasonNetSecret          Reason = "net_secret"
	ReasonNetStarting        Reason = "net_starting"
	ReasonNetTap             Reason = "net_tap"
	ReasonNetTapBusy         Reason = "net_tap_busy"
	ReasonNetworkAlias       Reason = "network_alias"
	ReasonNetworkEmpty       Reason = "network_empty"
	ReasonNetworkExists      Reason = "network_exists"
	ReasonNetworkInUse       Reason = "network_in_use"
	ReasonNetworkNotFound    Reason = "network_not_found"
	ReasonNotAFile           Reason = "not_a_file"
	ReasonNoAncestor         Reason = "no_ancestor"
	ReasonNoPlace            Reason = "no_place"
	ReasonNotInAncestry      Reason = "not_in_ancestry"
	ReasonOperatorOnly       Reason = "operator_only"
	ReasonOverlayNoRoom      Reason = "overlay_no_room"
	ReasonPauseTooLong       Reason = "pause_too_long"
	ReasonPinDamaged         Reason = "pin_damaged"
	ReasonPortRefused        Reason = "port_refused"
	ReasonPortTimeout        Reason = "port_timeout"
	ReasonPortsBusy          Reason = "ports_busy"
	ReasonProgramFailed      Reason = "program_failed"
	ReasonProgramTimeout     Reason = "program_timeout"
	ReasonQuota              Reason = "quota"
	ReasonReceiptNotFound    Reason = "receipt_not_found"
	ReasonRestoreRefused     Reason = "restore_refused"
	ReasonResumesBusy        Reason = "resumes_busy"
	ReasonSameTag            Reason = "same_tag"
	ReasonSandboxBroken      Reason = "sandbox_broken"
	ReasonSandboxEnded       Reason = "sandbox_ended"
	ReasonSandboxFailed      Reason = "sandbox_failed"
	ReasonSandboxBound       Reason = "sandbox_bound"
	ReasonSandboxMoved       Reason = "sandbox_moved"
	ReasonSandboxUnsettled   Reason = "sandbox_unsettled"
	ReasonSandboxPaused      Reason = "sandbox_paused"
	ReasonSandboxRolledBack  Reason = "sandbox_rolled_back"
	ReasonSnapshotDamaged    Reason = "snapshot_damaged"
	ReasonSnapshotPartial    Reason = "snapshot_partial"
	ReasonSnapshotNotFound   Reason = "snapshot_not_found"
	ReasonSnapshotNotReady   Reason = "snapshot_not_ready"
	ReasonSnapshotPinned     Reason = "snapshot_pinned"
	ReasonStoreFull          Reason = "store_full"
	ReasonSecretNotFound     Reason = "secret_not_found"
	ReasonSecretUnreadable   Reason = "secret_unreadable"
	ReasonSecretsOff         Reason = "secrets_off"
	ReasonIdentityOff        Reason = "identity_off"
	ReasonTagTaken           Reason = "tag_taken"
	ReasonTainted            Reason = "tainted"
	ReasonTransitionBusy     Reason = "transition_busy"
	ReasonTransitionSlow     Reason = "transition_slow"
	ReasonUnsigned           Reason = "unsigned"
	ReasonVolumeExists       Reason = "volume_exists"
	ReasonVolumeHeld         Reason = "volume_held"
	ReasonVolumeMode         Reason = "volume_mode"
	ReasonVolumeNotFound     Reason = "volume_not_found"
	ReasonVolumeOther        Reason = "volume_other"
	ReasonVolumePath         Reason = "volume_path"
	ReasonVolumePrivate      Reason = "volume_private"
	ReasonVolumeSlots        Reason = "volume_slots"
	ReasonWaitForChildren    Reason = "wait_for_children"
	ReasonWarmUpFailed       Reason = "warm_up_failed"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonAgentOld,
		ReasonAgentSilent,
		ReasonAncestryGone,
		ReasonAnswerNoRoom,
		ReasonBranchFailed,
		ReasonBranchesBusy,
		ReasonChildBrokeOff,
		ReasonColdPause,
		ReasonDependentSandboxes,
		ReasonDependentSnapshots,
		ReasonDigestsNotReady,
		ReasonDirectoryInUse,
		ReasonDirectoryRefused,
		ReasonDiskLimit,
		ReasonDiskLostWrites,
		ReasonDiskNoRoom,
		ReasonDiskPromised,
		ReasonEvalTimeout,
		ReasonHostDescriptors,
		ReasonHostMemory,
		ReasonHostPressure,
		ReasonHostThreads,
		ReasonImageDamaged,
		ReasonImageMissing,
		ReasonImageNotFound,
		ReasonKernelUnusable,
		ReasonLimitUnsupported,
		ReasonMemoryPromised,
		ReasonNetOff,
		ReasonNetRule,
		ReasonNetSecret,
		ReasonNetStarting,
		ReasonNetTap,
		ReasonNetTapBusy,
		ReasonNetworkAlias,
		ReasonNetworkEmpty,
		ReasonNetworkExists,
		ReasonNetworkInUse,
		ReasonNetworkNotFound,
		ReasonNotAFile,
		ReasonNoAncestor, ReasonNoPlace,
		ReasonNotInAncestry,
		ReasonOperatorOnly,
		ReasonOverlayNoRoom,
		ReasonPauseTooLong,
		ReasonPinDamaged,
		ReasonPortRefused,
		ReasonPortTimeout,
		ReasonPortsBusy,
		ReasonProgramFailed,
		ReasonProgramTimeout,
		ReasonQuota,
		ReasonReceiptNotFound,
		ReasonRestoreRefused,
		ReasonResumesBusy,
		ReasonSameTag,
		ReasonSandboxBroken,
		ReasonSandboxEnded,
		ReasonSandboxFailed,
		ReasonSandboxPaused,
		ReasonSandboxRolledBack,
		ReasonSnapshotDamaged, ReasonSnapshotPartial,
		ReasonSnapshotNotFound,
		ReasonSnapshotNotReady, ReasonSnapshotPinned,
		ReasonStoreFull,
		ReasonSecretNotFound,
		ReasonSecretUnreadable,
		ReasonSecretsOff,
		ReasonIdentityOff,
		ReasonTagTaken,
		ReasonTainted,
		ReasonTransitionBusy,
		ReasonTransitionSlow,
		ReasonUnsigned,
		ReasonVolumeExists,
		ReasonVolumeHeld,
		ReasonVolumeMode,
		ReasonVolumeNotFound,
		ReasonVolumeOther,
		ReasonVolumePath,
		ReasonVolumePrivate,
		ReasonVolumeSlots,
		ReasonWaitForChildren,
		ReasonWarmUpFailed,
	}
}
