// How the kernel schedules a thread of ours.
#pragma once

namespace hvdtune {

// Asks for time slices of 0.1 ms for the calling thread, so that after a short wait it runs before
// a thread that computes for long, instead of a few milliseconds after. It gets no more time than
// others. Linux 6.12 and later honour it (EEVDF, sched_attr::sched_runtime); elsewhere it does
// nothing. Needs no privilege.
void ask_for_short_slices();

}  // namespace hvdtune
