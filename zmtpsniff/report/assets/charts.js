export { getInstanceByDom, init, use, format } from "echarts/core";
import { use } from "echarts/core";
import { BarChart, CustomChart, GraphChart, HeatmapChart, LineChart } from "echarts/charts";
import { AriaComponent, DataZoomComponent, GridComponent, LegendComponent, TooltipComponent, VisualMapContinuousComponent } from "echarts/components";
import { SVGRenderer } from "echarts/renderers";
use([BarChart, CustomChart, GraphChart, HeatmapChart, LineChart, AriaComponent, DataZoomComponent, GridComponent, LegendComponent, TooltipComponent, VisualMapContinuousComponent, SVGRenderer]);
