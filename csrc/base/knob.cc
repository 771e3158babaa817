#include "base/knob.h"

#include <array>
#include <cmath>
#include <sstream>

#include "base/status.h"

namespace hvdtune {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

template <auto Field>
double get(const Setting& setting) {
  return static_cast<double>(setting.*Field);
}

template <auto Field>
void set(Setting& setting, double value) {
  using Type = std::remove_reference_t<decltype(setting.*Field)>;
  setting.*Field = static_cast<Type>(value);
}

template <auto Field>
constexpr Knob knob(std::string_view name, KnobKind kind, std::string_view unit, double low,
                    double high, bool log_scale, KnobScope scope, int min_hosts,
                    std::string_view doc) {
  return {name, kind, unit, low, high, log_scale, scope, min_hosts, doc, &get<Field>, &set<Field>};
}

constexpr std::array<std::string_view, 7> kAllreduceChoices = {
    "auto", "direct", "doubling", "chain", "ring", "halving_doubling", "tree"};

template <auto Field>
constexpr Knob category(std::string_view name, std::span<const std::string_view> choices,
                        int min_hosts, std::string_view doc) {
  Knob row = knob<Field>(name, KnobKind::kCategory, "", 0, static_cast<double>(choices.size() - 1),
                         false, KnobScope::kLive, min_hosts, doc);
  row.choices = choices;
  return row;
}

constexpr std::array kKnobs = {
    knob<&Setting::fusion_threshold_bytes>("fusion_threshold_bytes", KnobKind::kInt, "bytes", 0,
                                           512 * kMiB, true, KnobScope::kLive, 1,
                                           "Maximum size of a bucket, whose tensors are reduced "
                                           "together; 0 reduces each tensor alone."),
    knob<&Setting::cycle_time_ms>(
        "cycle_time_ms", KnobKind::kFloat, "ms", 0, 50, true, KnobScope::kLive, 1,
        "Time to collect tensors before they are announced and reduced together; 0 does not wait."),
    knob<&Setting::chunk_bytes>(
        "chunk_bytes", KnobKind::kInt, "bytes", 64 * 1024, 4 * kMiB, true, KnobScope::kLive, 1,
        "Size of the pieces in which buckets are packed, reduced and unpacked."),
    knob<&Setting::hierarchical_allreduce>("hierarchical_allreduce", KnobKind::kBool, "", 0, 1,
                                           false, KnobScope::kLive, 2,
                                           "Reduce within each host first, then across hosts; on "
                                           "GPUs, NCCL does only the first part."),
    knob<&Setting::hierarchical_allgather>(
        "hierarchical_allgather", KnobKind::kBool, "", 0, 1, false, KnobScope::kLive, 2,
        "Send each block once to every other host, where the ranks share it."),
    knob<&Setting::torus_allreduce>(
        "torus_allreduce", KnobKind::kBool, "", 0, 1, false, KnobScope::kLive, 2,
        "Reduce among the ranks of each host, then among the ranks with the same local rank."),
    category<&Setting::allreduce_algorithm>(
        "allreduce_algorithm", kAllreduceChoices, 1,
        "Algorithm of an allreduce; ring, halving_doubling and tree add in a different order, so "
        "the last bits of a sum differ."),
    knob<&Setting::cache_enabled>(
        "cache_enabled", KnobKind::kBool, "", 0, 1, false, KnobScope::kLive, 1,
        "Announce a known tensor by its number instead of its full description."),
    knob<&Setting::cache_capacity>("cache_capacity", KnobKind::kInt, "entries", 0, 65536, true,
                                   KnobScope::kReinit, 1,
                                   "Number of tensors that the response cache remembers."),
    knob<&Setting::channels>("channels", KnobKind::kInt, "streams", 1, 16, true, KnobScope::kReinit,
                             2,
                             "Number of connections per link between hosts, for networks that "
                             "limit the speed of each."),
};

std::string number(const Knob& knob, double value) {
  if (knob.kind == KnobKind::kBool) return value != 0 ? "true" : "false";
  if (knob.kind == KnobKind::kCategory) {
    return "\"" + std::string(knob.choices[static_cast<size_t>(value)]) + "\"";
  }
  std::ostringstream out;
  out.precision(17);
  if (knob.kind == KnobKind::kInt) {
    out << static_cast<int64_t>(value);
  } else {
    out << value;
  }
  return out.str();
}

}  // namespace

std::span<const Knob> knob_table() { return kKnobs; }

const Knob* find_knob(std::string_view name) {
  for (const Knob& knob : kKnobs) {
    if (knob.name == name) return &knob;
  }
  return nullptr;
}

double choice_value(const Knob& knob, std::string_view choice) {
  std::string known;
  for (size_t i = 0; i < knob.choices.size(); ++i) {
    if (knob.choices[i] == choice) return static_cast<double>(i);
    known.append(known.empty() ? "" : ", ").append(knob.choices[i]);
  }
  throw Error(ErrorCode::kUsage, std::string(knob.name) + " = " + std::string(choice) +
                                     " is unknown; choose one of " + known);
}

void set_knob(Setting& setting, std::string_view name, double value) {
  const Knob* knob = find_knob(name);
  if (knob == nullptr) {
    std::string known;
    for (const Knob& row : kKnobs) known.append(known.empty() ? "" : ", ").append(row.name);
    throw Error(ErrorCode::kUsage,
                "unknown knob " + std::string(name) + "; the knobs are " + known);
  }
  const bool whole = knob->kind == KnobKind::kFloat || value == std::floor(value);
  if (!(value >= knob->low && value <= knob->high) || !whole) {
    std::ostringstream text;
    text << knob->name << " = " << value << " is out of range: " << number(*knob, knob->low)
         << " to " << number(*knob, knob->high) << (knob->unit.empty() ? "" : " ") << knob->unit;
    throw Error(ErrorCode::kUsage, text.str());
  }
  knob->set(setting, value);
}

std::string to_json(const Setting& setting) {
  std::string text = "{";
  for (const Knob& knob : kKnobs) {
    if (text.size() > 1) text += ", ";
    text.append("\"").append(knob.name).append("\": ").append(number(knob, knob.get(setting)));
  }
  for (const ScriptValue& each : setting.script) {
    text.append(", \"").append(each.name).append("\": ").append(each.value);
  }
  return text + "}";
}

}  // namespace hvdtune
