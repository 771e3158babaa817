from hvdtune.timeline.analysis.metrics.tensors import tensor_table as tensor_table
from hvdtune.timeline.analysis.phases import phase_table as phase_table
from hvdtune.timeline.analysis.phases import step_table as step_table
from hvdtune.timeline.analysis.phases import summary as summary
from hvdtune.timeline.model.lateness import lateness as lateness
from hvdtune.timeline.model.schema import KINDS as KINDS
from hvdtune.timeline.model.trace import Trace as Trace
from hvdtune.timeline.reading.merge import merge as merge
from hvdtune.timeline.reading.opening import open_trace as open_trace
from hvdtune.timeline.writing.export import write_chrome as write_chrome
from hvdtune.timeline.writing.write_slices import write_slices as write_slices

load = open_trace
read = open_trace
