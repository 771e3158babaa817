#include "wire/report.h"

#include "wire/codec.h"

namespace hvdtune {

constexpr int count_of(ProcessState /*type*/) { return kProcessStateCount; }
constexpr int count_of(GpuProgress /*type*/) { return kGpuProgressCount; }

static void fields(auto& archive, OneOf<ProcessIdentity> auto& identity) {
  archive(identity.pid, identity.pid_namespace, identity.started);
}

static void fields(auto& archive, OneOf<Pulse> auto& pulse) {
  archive(pulse.sent_ns, pulse.stuck_ns, pulse.cpu_ns, pulse.blocked, pulse.heard_ns);
}

static void fields(auto& archive, OneOf<Called> auto& called) {
  archive(called.process_set, called.joins, called.age_ns, called.name, called.description,
          called.gpu);
}

static void fields(auto& archive, OneOf<RankReport> auto& report) {
  archive(report.round, report.waiting_threads, report.stack, report.left_out, report.called,
          report.blocked, report.cycles);
}

static void fields(auto& archive, OneOf<ProbeRequest> auto& request) {
  archive(request.rank, request.who);
}

static void fields(auto& archive, OneOf<ProbeResult> auto& result) {
  archive(result.rank, result.state);
}

std::vector<uint8_t> encode(const ProcessIdentity& identity) { return encoded(identity); }
std::vector<uint8_t> encode(const Pulse& pulse) { return encoded(pulse); }
std::vector<uint8_t> encode(const RankReport& report) { return encoded(report); }
std::vector<uint8_t> encode(const ProbeRequest& request) { return encoded(request); }
std::vector<uint8_t> encode(const ProbeResult& result) { return encoded(result); }
ProcessIdentity decode_identity(Bytes bytes) { return decoded<ProcessIdentity>(bytes); }
Pulse decode_pulse(Bytes bytes) { return decoded<Pulse>(bytes); }
RankReport decode_report(Bytes bytes) { return decoded<RankReport>(bytes); }
ProbeRequest decode_probe_request(Bytes bytes) { return decoded<ProbeRequest>(bytes); }
ProbeResult decode_probe_result(Bytes bytes) { return decoded<ProbeResult>(bytes); }

}  // namespace hvdtune
